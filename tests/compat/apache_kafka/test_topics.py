"""Topics: created, described, grown and deleted as in Apache Kafka."""

from collections.abc import Callable

import pytest

from millrace.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from millrace.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from millrace.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from millrace.wire.messages.describe_cluster import DescribeClusterRequest
from millrace.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from millrace.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from millrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

from .twins import Twins

pytestmark = [pytest.mark.java, pytest.mark.slow]

TIMEOUT_MS = 10_000
# Kafka returns an id that the topic would have had.
NO_ID_BEFORE = 7
TOPIC_IDS_FROM = 6
UNKNOWN_TOPIC_ID = b"an unknown topic"


def new(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    *,
    on: dict[int, list[int]] | None = None,
    **configs: str | None,
) -> CreatableTopic:
    return CreatableTopic(
        name,
        partitions,
        replicas,
        [CreatableReplicaAssignment(partition, brokers) for partition, brokers in (on or {}).items()],
        [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()],
    )


CREATED: dict[str, Callable[[str], list[CreatableTopic]]] = {
    "plain": lambda name: [new(name, 2)],
    "defaults": lambda name: [new(name, -1, -1)],
    "no partitions": lambda name: [new(name, 0)],
    "fewer than none": lambda name: [new(name, -2)],
    "no replicas": lambda name: [new(name, 1, 0)],
    "two replicas": lambda name: [new(name, 1, 2)],
    "no name": lambda name: [new("")],
    "a dot": lambda name: [new(".")],
    "two dots": lambda name: [new("..")],
    "a space": lambda name: [new(f"{name} x")],
    "too long": lambda name: [new(name.ljust(250, "x"))],
    "just not too long": lambda name: [new(name.ljust(249, "x"))],
    "twice": lambda name: [new(name), new(name)],
    "one good, two bad": lambda name: [new(name), new(f"{name} x"), new(f"{name}-none", 0)],
    "nothing": lambda name: [],
    "of the broker": lambda name: [new("__cluster_metadata")],
    "of the coordinator": lambda name: [new("__consumer_offsets")],
    "assigned": lambda name: [new(name, -1, -1, on={0: [1], 1: [1]})],
    "assigned and counted": lambda name: [new(name, 2, -1, on={0: [1], 1: [1]})],
    "assigned and replicated": lambda name: [new(name, -1, 1, on={0: [1]})],
    "assigned with a gap": lambda name: [new(name, -1, -1, on={0: [1], 2: [1]})],
    "assigned to one twice": lambda name: [new(name, -1, -1, on={0: [1, 1]})],
    "assigned to an unknown broker": lambda name: [new(name, -1, -1, on={0: [9]})],
    "assigned to no broker": lambda name: [new(name, -1, -1, on={0: []})],
    "configured": lambda name: [new(name, retention_ms="1000", cleanup_policy="compact")],
    "compacted and deleted": lambda name: [new(name, cleanup_policy="compact,delete")],
    "unknown config": lambda name: [new(name, no_such="1")],
    "no number": lambda name: [new(name, retention_ms="x")],
    "a number in Python only": lambda name: [new(name, retention_ms="1_000")],
    "hexadecimal": lambda name: [new(name, retention_ms="0x10")],
    "too small": lambda name: [new(name, retention_ms="-2")],
    "too large for an int": lambda name: [new(name, segment_bytes="4294967296")],
    "too large for a long": lambda name: [new(name, retention_ms="9223372036854775808")],
    "no value": lambda name: [new(name, retention_ms=None)],
    "unknown policy": lambda name: [new(name, cleanup_policy="forget")],
    "a share": lambda name: [new(name, min_cleanable_dirty_ratio="0.25")],
    "more than a whole": lambda name: [new(name, min_cleanable_dirty_ratio="1.5")],
    "a share in Python only": lambda name: [new(name, min_cleanable_dirty_ratio="0.2_5")],
    "shouted codec": lambda name: [new(name, compression_type="GZIP")],
    "no truth": lambda name: [new(name, preallocate="yes")],
    "lags the wrong way round": lambda name: [
        new(name, min_compaction_lag_ms="9", max_compaction_lag_ms="5")
    ],
    "segment too small": lambda name: [new(name, segment_bytes="13")],
    "tiered": lambda name: [new(name, remote_storage_enable="true")],
    "of an old Kafka": lambda name: [new(name, message_format_version="3.0")],
    "throttled": lambda name: [new(name, leader_replication_throttled_replicas="0:1")],
    "throttled wrongly": lambda name: [new(name, leader_replication_throttled_replicas="zz")],
}


@pytest.mark.parametrize("case", CREATED)
def test_creating(twins: Twins, case: str) -> None:
    topics = CREATED[case]
    number = list(CREATED).index(case)
    for version in twins.versions(CreateTopicsRequest):
        name = f"create-{number}-{version}"
        if version < NO_ID_BEFORE:
            twins.agree(CreateTopicsRequest(topics=topics(name), validate_only=True), version)
        twins.agree(CreateTopicsRequest(topics=topics(name)), version)
        twins.agree(CreateTopicsRequest(topics=topics(name)), version)


def test_a_name_that_differs_in_punctuation_only(twins: Twins) -> None:
    twins.create_topic("col.lide")
    twins.agree_in_all(CreateTopicsRequest(topics=[new("col_lide")]))


def test_metadata(twins: Twins) -> None:
    twins.create_topic("told", 3)

    def told(*names: str, **flags: bool) -> MetadataRequest:
        return MetadataRequest([MetadataRequestTopic(name=name) for name in names], **flags)

    twins.agree_in_all(told("told"))
    twins.agree_in_all(told("told", "told", "never"))
    twins.agree_in_all(told("never", "a b", "", allow_auto_topic_creation=True))
    twins.agree_in_all(told("__consumer_offsets"))
    twins.agree_in_all(told(), since=1)
    twins.agree_in_all(told("told", include_topic_authorized_operations=True), since=8)
    for version in twins.versions(MetadataRequest, since=12):
        twins.agree(
            lambda peer: MetadataRequest([MetadataRequestTopic(peer.topic_ids["told"], None)]), version
        )
        twins.agree(MetadataRequest([MetadataRequestTopic(UNKNOWN_TOPIC_ID, None)]), version)


def test_the_cluster(twins: Twins) -> None:
    twins.agree_in_all(DescribeClusterRequest())
    twins.agree_in_all(DescribeClusterRequest(include_cluster_authorized_operations=True))
    twins.agree_in_all(DescribeClusterRequest(endpoint_type=2), since=1)
    twins.agree_in_all(DescribeClusterRequest(endpoint_type=9), since=1)


def test_log_dirs(twins: Twins) -> None:
    twins.create_topic("kept", 2)
    for topics in ([], [DescribableLogDirTopic("kept", [0, 9])], [DescribableLogDirTopic("never", [0])]):
        twins.agree_in_all(DescribeLogDirsRequest(topics=topics))
    twins.agree_in_all(DescribeLogDirsRequest(topics=[DescribableLogDirTopic("kept", [])]))


def test_partitions_page_by_page(twins: Twins) -> None:
    twins.create_topic("page", 3)
    twins.create_topic("pages", 1)
    both = [TopicRequest("pages"), TopicRequest("page")]
    for limit in (2000, 2, 1, 0, -1):
        twins.agree_in_all(DescribeTopicPartitionsRequest(both, limit))
    for cursor in (Cursor("page", 1), Cursor("page", 9), Cursor("pages", 0)):
        twins.agree_in_all(DescribeTopicPartitionsRequest(both, 2000, cursor))
    twins.agree_in_all(DescribeTopicPartitionsRequest([TopicRequest("page"), TopicRequest("page")]))


GROWN: dict[str, tuple[int, list[list[int]] | None]] = {
    "no more": (2, None),
    "fewer": (1, None),
    "none": (0, None),
    "less than none": (-1, None),
    "assigned to an unknown broker": (3, [[9]]),
    "assigned twice": (3, [[1, 1]]),
    "assigned to no broker": (3, [[]]),
    "too few assigned": (4, [[1]]),
    "none assigned": (3, []),
    "one more": (3, None),
    "one more, assigned": (4, [[1]]),
}


def test_growing(twins: Twins) -> None:
    for version in twins.versions(CreatePartitionsRequest):
        name = f"grow-{version}"
        twins.create_topic(name, 2)
        for validate_only in (True, False):
            for count, assignments in GROWN.values():
                assigned = None
                if assignments is not None:
                    assigned = [CreatePartitionsAssignment(brokers) for brokers in assignments]
                topic = CreatePartitionsTopic(name, count, assigned)
                twins.agree(CreatePartitionsRequest([topic], TIMEOUT_MS, validate_only), version)
        twice = [CreatePartitionsTopic(name, 8, None), CreatePartitionsTopic(name, 9, None)]
        twins.agree(CreatePartitionsRequest(twice, TIMEOUT_MS), version)
        unknown = [CreatePartitionsTopic(name, 5, None), CreatePartitionsTopic("never", 2, None)]
        twins.agree(CreatePartitionsRequest(unknown, TIMEOUT_MS), version)
        twins.agree_soon(MetadataRequest([MetadataRequestTopic(name=name)]), 9)


def test_deleting(twins: Twins) -> None:
    def deleted(*names: str) -> DeleteTopicsRequest:
        return DeleteTopicsRequest([DeleteTopicState(name) for name in names], list(names), TIMEOUT_MS)

    for version in twins.versions(DeleteTopicsRequest):
        names = f"delete-{version}", f"delete-{version}-too"
        for name in names:
            twins.create_topic(name)
        twins.agree(deleted(names[0], names[0]), version)
        twins.agree(deleted(*names), version)
        twins.agree(deleted(*names), version)
        twins.agree(deleted("a b", ""), version)
        twins.agree(deleted(), version)


def test_deleting_by_id(twins: Twins) -> None:
    twins.create_topic("by-id")
    for version in twins.versions(DeleteTopicsRequest, since=TOPIC_IDS_FROM):

        def by(*states: DeleteTopicState) -> DeleteTopicsRequest:
            return DeleteTopicsRequest(list(states), timeout_ms=TIMEOUT_MS)

        twins.agree(by(DeleteTopicState(None, UNKNOWN_TOPIC_ID)), version)
        twins.agree(by(DeleteTopicState(None)), version)
        twins.agree(lambda peer: by(DeleteTopicState("by-id", peer.topic_ids["by-id"])), version)
        for _ in range(2):
            twins.agree(lambda peer: by(DeleteTopicState(None, peer.topic_ids["by-id"])), version)


def test_a_topic_named_by_its_name_and_by_its_id_stays(twins: Twins) -> None:
    twins.create_topic("both-ways")
    for peer in twins:
        both = [DeleteTopicState(None, peer.topic_ids["both-ways"]), DeleteTopicState("both-ways")]
        (answer,) = peer.ask(DeleteTopicsRequest(both, timeout_ms=TIMEOUT_MS), TOPIC_IDS_FROM).responses
        assert (answer.name, answer.error_code) == ("both-ways", 42)
    twins.agree(MetadataRequest([MetadataRequestTopic(name="both-ways")]), 9)
