"""Offsets of groups without members: commit, fetch, delete, expire; finding and listing their groups."""

import asyncio

import pytest

from millrace.errors import Error
from millrace.wire.messages.delete_groups import DeleteGroupsRequest
from millrace.wire.messages.find_coordinator import FindCoordinatorRequest
from millrace.wire.messages.list_groups import ListGroupsRequest
from millrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from millrace.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from millrace.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

from ..node import Node, create_topic
from .api import Api
from .conftest import Call

DAY_MS = 24 * 60 * 60 * 1000


def commit(offset: int, *, topic: str = "orders", index: int = 0, **more: object) -> OffsetCommitRequest:
    metadata = str(more.pop("metadata", "note"))
    partition = OffsetCommitRequestPartition(
        partition_index=index, committed_offset=offset, committed_leader_epoch=3, committed_metadata=metadata
    )
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    return OffsetCommitRequest(group_id="readers", topics=topics, **more)


def error_of(response: object) -> int:
    (topic,) = response.topics  # type: ignore[attr-defined]
    (partition,) = topic.partitions
    return int(partition.error_code)


def fetch(topic: str = "orders", *indexes: int) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=list(indexes or (0,)))]
    return OffsetFetchRequest(group_id="readers", topics=topics)


def committed(call: Call, version: int = 7) -> int:
    return int(call(fetch(), version).topics[0].partitions[0].committed_offset)


@pytest.fixture(autouse=True)
def orders(api: Api) -> None:
    create_topic(api, "orders", 2)


@pytest.mark.parametrize("version", range(2, 10))
def test_committed_offsets_are_fetched(call: Call, version: int) -> None:
    assert error_of(call(commit(42), version)) == Error.NONE
    (partition,) = call(fetch(), min(version, 7)).topics[0].partitions
    assert (partition.committed_offset, partition.metadata, partition.error_code) == (42, "note", Error.NONE)
    assert partition.committed_leader_epoch == 3


def test_from_version_10_topics_go_by_id(call: Call, api: Api) -> None:
    topic_id = api.image.topics["orders"].topic_id
    request = commit(42)
    request.topics[0].topic_id = topic_id
    assert error_of(call(request, 10)) == Error.NONE
    asked = OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0, 1])
    group = OffsetFetchRequestGroup(group_id="readers", topics=[asked])
    (answer,) = call(OffsetFetchRequest(groups=[group]), 10).groups
    assert [partition.committed_offset for partition in answer.topics[0].partitions] == [42, -1]
    request.topics[0].topic_id = asked.topic_id = b"nobody has this."
    assert error_of(call(request, 10)) == Error.UNKNOWN_TOPIC_ID
    (answer,) = call(OffsetFetchRequest(groups=[group]), 10).groups
    assert answer.topics[0].partitions[0].error_code == Error.UNKNOWN_TOPIC_ID


def test_a_null_topic_list_requests_all_offsets(call: Call) -> None:
    call(commit(1, index=1), 8)
    call(commit(2, index=0), 8)
    everything = call(OffsetFetchRequest(group_id="readers", topics=None), 5).topics
    assert [(p.partition_index, p.committed_offset) for p in everything[0].partitions] == [(0, 2), (1, 1)]
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("readers", "strangers")]
    readers, strangers = call(OffsetFetchRequest(groups=groups), 8).groups
    assert [len(topic.partitions) for topic in readers.topics] == [2]
    assert (strangers.topics, strangers.error_code) == ([], Error.NONE)


def test_a_group_topic_or_partition_named_twice_is_answered_once(call: Call) -> None:
    call(commit(1, index=0), 8)
    call(commit(2, index=1), 8)
    topics = [
        OffsetFetchRequestTopics(name="orders", partition_indexes=[0, 0]),
        OffsetFetchRequestTopics(name="orders", partition_indexes=[1]),
    ]
    for groups, expected in (
        ([None, None], [(0, 1), (1, 2)]),
        ([topics, topics[:1]], [(0, 1), (1, 2)]),
        ([topics[:1], topics[1:]], [(0, 1), (1, 2)]),
        ([topics[:1], topics[:1]], [(0, 1)]),
        ([topics[:1], None], [(0, 1), (1, 2)]),
    ):
        asked = [OffsetFetchRequestGroup(group_id="readers", topics=wanted) for wanted in groups]
        (group,) = call(OffsetFetchRequest(groups=asked), 8).groups
        (topic,) = group.topics
        assert [(p.partition_index, p.committed_offset) for p in topic.partitions] == expected
    twice = OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 0])
    (topic,) = call(OffsetFetchRequest(group_id="readers", topics=[twice, twice]), 7).topics
    assert [p.partition_index for p in topic.partitions] == [0]


def test_a_partition_named_twice_in_a_commit_is_committed_as_named_last(call: Call, api: Api) -> None:
    request = commit(1)
    request.topics[0].partitions.append(
        OffsetCommitRequestPartition(partition_index=0, committed_offset=2, committed_metadata="")
    )
    (topic,) = call(request, 8).topics
    assert [(p.partition_index, p.error_code) for p in topic.partitions] == [(0, 0), (0, 0)]
    assert committed(call) == 2
    offsets = api.groups.runtime
    log = api.partitions.leader(offsets.topic, offsets.partition_of("readers")).log
    assert log.log_end_offset == 1


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (commit(1, topic="nothing"), Error.UNKNOWN_TOPIC_OR_PARTITION),
        (commit(1, index=9), Error.UNKNOWN_TOPIC_OR_PARTITION),
        (commit(1, index=-1), Error.UNKNOWN_TOPIC_OR_PARTITION),
        (commit(1, metadata="x" * 4097), Error.OFFSET_METADATA_TOO_LARGE),
        (commit(1, generation_id_or_member_epoch=4, member_id="gone"), Error.ILLEGAL_GENERATION),
    ],
)
def test_commits_that_cannot_be_are_refused(call: Call, request_: OffsetCommitRequest, error: Error) -> None:
    assert error_of(call(request_, 8)) == error
    assert committed(call) == -1


def test_any_client_may_commit_to_a_group_without_members(call: Call) -> None:
    for offset in (1, 2):
        assert error_of(call(commit(offset, member_id="whoever"), 8)) == Error.NONE
    assert committed(call) == 2


def test_a_missing_group_is_an_error_from_version_9(call: Call) -> None:
    request = commit(1, generation_id_or_member_epoch=4, member_id="gone")
    assert error_of(call(request, 9)) == Error.GROUP_ID_NOT_FOUND


def test_offsets_survive_a_kill(call: Call, api: Api, node: Node) -> None:
    call(commit(41), 8)
    call(commit(42), 8)
    node.kill()
    again = Api(node)
    asyncio.run(again.groups.runtime.load())
    kept = again.groups.runtime.shard_of("readers").offsets.get("readers", "orders", 0)
    assert kept is not None
    assert (kept.offset, kept.leader_epoch, kept.metadata) == (42, 3, "note")


def test_offsets_are_deleted_by_partition(call: Call) -> None:
    call(commit(1, index=0), 8)
    call(commit(2, index=1), 8)
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 7)]
    topic = OffsetDeleteRequestTopic(name="orders", partitions=partitions)
    response = call(OffsetDeleteRequest(group_id="readers", topics=[topic]))
    assert [p.error_code for p in response.topics[0].partitions] == [
        Error.NONE,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    answers = call(fetch("orders", 0, 1), 7).topics[0].partitions
    assert [answer.committed_offset for answer in answers] == [-1, 2]
    unknown = call(OffsetDeleteRequest(group_id="strangers", topics=[topic]))
    assert unknown.error_code == Error.GROUP_ID_NOT_FOUND


def test_a_group_is_deleted_with_its_offsets(call: Call) -> None:
    call(commit(1), 8)
    results = call(DeleteGroupsRequest(groups_names=["readers", "strangers"])).results
    assert [result.error_code for result in results] == [Error.NONE, Error.GROUP_ID_NOT_FOUND]
    assert committed(call) == -1
    assert call(ListGroupsRequest()).groups == []


@pytest.mark.parametrize(
    ("states", "kinds", "found"),
    [
        ([], [], 1),
        (["Empty"], [], 1),
        (["EMPTY"], ["Classic"], 1),
        (["Stable"], [], 0),
        ([], ["consumer"], 0),
    ],
)
def test_groups_are_listed_by_state_and_type(
    call: Call, states: list[str], kinds: list[str], found: int
) -> None:
    call(commit(1), 8)
    groups = call(ListGroupsRequest(states_filter=states, types_filter=kinds)).groups
    assert len(groups) == found
    assert all((g.group_id, g.group_state, g.group_type) == ("readers", "Empty", "classic") for g in groups)


def test_unused_offsets_expire_and_their_group_with_them(call: Call, api: Api) -> None:
    call(commit(1), 8)
    shard = api.groups.runtime.shard_of("readers")
    api.groups.expire(shard)
    assert committed(call) == 1
    api.config.offsets_retention_minutes = 0
    api.groups.expire(shard)
    assert committed(call) == -1
    assert list(api.groups) == []


def test_a_retention_time_of_the_request_overrides_the_brokers(call: Call, api: Api) -> None:
    call(commit(1, retention_time_ms=DAY_MS), 4)
    api.config.offsets_retention_minutes = 0
    api.groups.expire(api.groups.runtime.shard_of("readers"))
    assert committed(call) == 1


@pytest.mark.parametrize("version", range(7))
def test_this_broker_coordinates_every_group(call: Call, api: Api, version: int) -> None:
    response = call(FindCoordinatorRequest(key="readers", coordinator_keys=["readers", "others"]), version)
    found = [response] if version < 4 else response.coordinators
    assert len(found) == (1 if version < 4 else 2)
    for coordinator in found:
        assert (coordinator.node_id, coordinator.host, coordinator.port) == (1, "broker.example", 19092)
        assert coordinator.error_code == Error.NONE
    assert "__consumer_offsets" in api.image.topics


def test_an_unknown_kind_of_coordinator_is_refused(call: Call) -> None:
    (found,) = call(FindCoordinatorRequest(coordinator_keys=["x"], key_type=9), 4).coordinators
    assert found.error_code == Error.INVALID_REQUEST
