"""Group requests that no client sends, found by fuzzing."""

from millrace.testing import Broker
from millrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from millrace.wire.messages.find_coordinator import FindCoordinatorRequest
from millrace.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from millrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

from ..wire_client import WireClient


def test_a_protocol_offered_twice_is_one_protocol() -> None:
    twice = [JoinGroupRequestProtocol(name="range", metadata=b"\0\0")] * 2
    request = JoinGroupRequest(
        group_id="group",
        protocol_type="consumer",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocols=twice,
    )
    with Broker({"group.initial.rebalance.delay.ms": "0"}) as broker, WireClient(broker.bootstrap) as client:
        client.send(FindCoordinatorRequest(key="group"), 3)
        response = client.send(request, 3)
        assert (response.error_code, response.protocol_name) == (0, "range")


def test_the_largest_retention_time_of_old_commits_is_accepted() -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topic = OffsetCommitRequestTopic(name="topic", partitions=[partition])
    request = OffsetCommitRequest(group_id="group", retention_time_ms=2**63 - 1, topics=[topic])
    created = CreatableTopic(name="topic", num_partitions=1, replication_factor=1)
    with Broker() as broker, WireClient(broker.bootstrap) as client:
        client.send(CreateTopicsRequest(topics=[created]), 5)
        client.send(FindCoordinatorRequest(key="group"), 3)
        response = client.send(request, 3)
        assert [partition.error_code for partition in response.topics[0].partitions] == [0]
