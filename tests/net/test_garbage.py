"""Requests leave nothing to the garbage collector, whose runs make clients wait."""

import gc
from collections.abc import Callable, Iterator

import pytest

from millrace.testing import Broker
from millrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from millrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from millrace.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from millrace.wire.messages.leave_group import LeaveGroupRequest
from millrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

from ..records import batch
from ..wire_client import WireClient

TIMES = 50
TOPIC = "orders"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"group.initial.rebalance.delay.ms": "0"}) as broker, WireClient(broker.bootstrap) as client:
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        client.send(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
        yield broker


def fetch(offset: int, max_wait_ms: int) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=TOPIC, partitions=[partition])]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=topics)


def produce() -> ProduceRequest:
    data = PartitionProduceData(index=0, records=memoryview(batch(b"news")))
    return ProduceRequest(acks=1, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])])


def waiting_for_a_record(bootstrap: str) -> None:
    with WireClient(bootstrap) as producer, WireClient(bootstrap) as consumer:
        for _ in range(TIMES):
            acknowledged = producer.send(produce(), 8)
            (produced,) = acknowledged.responses[0].partition_responses
            fetched = consumer.begin(fetch(produced.base_offset + 1, 60_000), 11)
            producer.send(produce(), 8)
            consumer.finish(fetched)


def waiting_in_vain(bootstrap: str) -> None:
    with WireClient(bootstrap) as producer, WireClient(bootstrap) as consumer:
        (produced,) = producer.send(produce(), 8).responses[0].partition_responses
        for _ in range(TIMES):
            consumer.send(fetch(produced.base_offset + 1, 1), 11)


def joining_and_leaving(bootstrap: str) -> None:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    with WireClient(bootstrap) as member:
        for _ in range(TIMES):
            join = JoinGroupRequest(
                group_id="readers", session_timeout_ms=10_000, protocol_type="consumer", protocols=protocols
            )
            joined = member.send(join, 2)
            member.send(LeaveGroupRequest(group_id="readers", member_id=joined.member_id), 1)


@pytest.mark.parametrize("work", [waiting_for_a_record, waiting_in_vain, joining_and_leaving])
def test_the_memory_of_a_request_is_freed_at_once(broker: Broker, work: Callable[[str], None]) -> None:
    work(broker.bootstrap)
    gc.collect()
    gc.disable()
    try:
        work(broker.bootstrap)
        assert gc.collect() < TIMES
    finally:
        gc.enable()
