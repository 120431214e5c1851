"""Produce and Fetch to a broker that does not lead: the response names the leader (KIP-951)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millrace.errors import Error
from millrace.wire.messages.current_leader import LeaderIdAndEpoch, NodeEndpoint
from millrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from millrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

from ..node import ENDPOINTS
from ..records import batch
from ..two_nodes import TwoNodes

HOST, PORT = ENDPOINTS["PLAINTEXT"]
ACKS_LEADER, ACKS_ALL = 1, -1


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[TwoNodes]:
    brokers = TwoNodes(tmp_path)
    brokers.create_topic("orders")
    yield brokers
    brokers.close()


def produce(brokers: TwoNodes, acks: int = ACKS_LEADER) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=memoryview(batch(b"v")))]
    topic_id = brokers.store.image.topics["orders"].topic_id
    topics = [TopicProduceData(name="orders", topic_id=topic_id, partition_data=data)]
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=topics)


def fetch(brokers: TwoNodes, leader_epoch: int = -1) -> FetchRequest:
    asked = FetchPartition(partition=0, partition_max_bytes=1 << 20, current_leader_epoch=leader_epoch)
    topic_id = brokers.store.image.topics["orders"].topic_id
    return FetchRequest(topics=[FetchTopic(topic="orders", topic_id=topic_id, partitions=[asked])])


def outcome_of(response: Any) -> tuple[Error, LeaderIdAndEpoch | None, list[NodeEndpoint]]:
    (topic,) = response.responses
    (partition,) = topic.partition_responses if hasattr(topic, "partition_responses") else topic.partitions
    return Error(partition.error_code), partition.current_leader, response.node_endpoints


def led_by(broker_id: int, epoch: int) -> tuple[LeaderIdAndEpoch, list[NodeEndpoint]]:
    return LeaderIdAndEpoch(broker_id, epoch), [NodeEndpoint(broker_id, HOST, PORT)]


@pytest.mark.parametrize("version", [9, 10, 12, 13])
def test_a_producer_that_asks_a_follower_learns_the_leader(brokers: TwoNodes, version: int) -> None:
    response = brokers.send(produce(brokers), version, to=brokers.following).response
    leader, endpoints = led_by(1, 0) if version >= 10 else (None, [])
    assert outcome_of(response) == (Error.NOT_LEADER_OR_FOLLOWER, leader, endpoints)


@pytest.mark.parametrize("version", [12, 15, 16, 18])
def test_a_consumer_that_asks_a_follower_learns_the_leader(brokers: TwoNodes, version: int) -> None:
    response = brokers.send(fetch(brokers), version, to=brokers.following).response
    leader, endpoints = led_by(1, 0) if version >= 16 else (None, [])
    assert outcome_of(response) == (Error.NOT_LEADER_OR_FOLLOWER, leader, endpoints)


def test_a_producer_that_waits_for_a_commit_learns_the_next_leader(brokers: TwoNodes) -> None:
    answer = brokers.send(produce(brokers, ACKS_ALL), 10)
    assert not answer.arrived
    brokers.fail_over()
    brokers.pass_time()
    assert outcome_of(answer.response) == (Error.NOT_LEADER_OR_FOLLOWER, *led_by(2, 1))


def test_a_consumer_that_waits_for_records_learns_the_next_leader(brokers: TwoNodes) -> None:
    request = fetch(brokers)
    request.max_wait_ms, request.min_bytes = 30_000, 1
    answer = brokers.send(request, 16)
    assert not answer.arrived
    brokers.fail_over()
    brokers.pass_time()
    assert outcome_of(answer.response) == (Error.NOT_LEADER_OR_FOLLOWER, *led_by(2, 1))


def test_a_consumer_with_an_old_leader_epoch_learns_the_present_one(brokers: TwoNodes) -> None:
    brokers.fail_over()
    response = brokers.send(fetch(brokers, leader_epoch=0), 16).response
    assert outcome_of(response) == (Error.FENCED_LEADER_EPOCH, *led_by(2, 1))


def test_successful_responses_name_no_leader(brokers: TwoNodes) -> None:
    produced = brokers.send(produce(brokers), 13).response
    assert outcome_of(produced) == (Error.NONE, None, [])
    assert outcome_of(brokers.send(fetch(brokers), 18).response) == (Error.NONE, None, [])
