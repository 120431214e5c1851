"""Groups: joined, committed to, described and deleted as in Apache Kafka."""

from functools import partial
from typing import Any

import pytest

from millrace.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from millrace.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from millrace.wire.messages.delete_groups import DeleteGroupsRequest
from millrace.wire.messages.describe_groups import DescribeGroupsRequest
from millrace.wire.messages.find_coordinator import FindCoordinatorRequest
from millrace.wire.messages.heartbeat import HeartbeatRequest
from millrace.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from millrace.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
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
from millrace.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

from .twins import Peer, Twins

pytestmark = [pytest.mark.java, pytest.mark.slow]

TOPIC = "grouped"
UNKNOWN_TOPIC_ID = b"an unknown topic"
IDS_COME_FIRST_FROM = 4
GHOST = "ghost"


@pytest.fixture(scope="module", autouse=True)
def topic(twins: Twins) -> None:
    twins.create_topic(TOPIC, 3)


@pytest.mark.parametrize(
    ("keys", "key_type"),
    [
        (["a"], 0),
        (["a"], 1),
        (["a"], 7),
        ([""], 0),
        ([], 0),
        (["a", "b", "a"], 0),
        (["g:x:0"], 2),
        (["g"], 2),
    ],
)
def test_finding_coordinators(twins: Twins, keys: list[str], key_type: int) -> None:
    key = keys[0] if keys else ""
    twins.agree_in_all(FindCoordinatorRequest(key, key_type, keys))


def joining(group: str, member_id: str = "", **details: Any) -> JoinGroupRequest:
    asked: dict[str, Any] = {
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol("range", b"")],
    }
    return JoinGroupRequest(group_id=group, member_id=member_id, **asked | details)


def joined(twins: Twins, group: str, version: int) -> None:
    """Let one member join; each broker has its own id for it."""

    def again(peer: Peer) -> JoinGroupRequest:
        return joining(group, peer.notes["joined"].member_id)

    for asked in (joining(group), again)[: 2 if version >= IDS_COME_FIRST_FROM else 1]:
        for peer in twins:
            peer.notes["joined"] = peer.ask(asked(peer) if callable(asked) else asked, version)
    theirs, ours = (peer.notes["joined"] for peer in twins)
    assert ours.error_code == theirs.error_code == 0
    assert ours.generation_id == theirs.generation_id
    assert ours.protocol_name == theirs.protocol_name


def member_of(peer: Peer) -> str:
    member_id: str = peer.notes["joined"].member_id
    return member_id


def test_the_life_of_a_member(twins: Twins) -> None:
    for version in twins.versions(JoinGroupRequest):
        group = f"member-{version}"
        joined(twins, group, version)

        def syncing(peer: Peer, group: str = group, **details: Any) -> SyncGroupRequest:
            asked: dict[str, Any] = {
                "group_id": group,
                "generation_id": 1,
                "member_id": member_of(peer),
                "protocol_type": "consumer",
                "protocol_name": "range",
                "assignments": [SyncGroupRequestAssignment(member_of(peer), b"all of it")],
            }
            return SyncGroupRequest(**asked | details)

        def beating(peer: Peer, group: str = group, **details: Any) -> HeartbeatRequest:
            asked = {"group_id": group, "generation_id": 1, "member_id": member_of(peer)}
            return HeartbeatRequest(**asked | details)

        syncs, beats = min(version, 5), min(version, 4)
        twins.agree(beating, beats)
        for wrong in (
            *({"generation_id": 9}, {"member_id": GHOST}, {"group_id": "none"}, {"group_id": ""}),
            *({"protocol_type": "other"}, {"protocol_name": "other"}),
        ):
            if syncs == 5 or not wrong.keys() & {"protocol_type", "protocol_name"}:
                twins.agree(lambda peer, wrong=wrong: syncing(peer, **wrong), syncs)
        for _ in range(2):
            twins.agree(syncing, syncs)
        twins.agree(beating, beats)
        for wrong in (
            *({"generation_id": 9}, {"generation_id": -1}, {"member_id": GHOST}),
            *({"group_id": "none"}, {"group_id": ""}),
        ):
            twins.agree(lambda peer, wrong=wrong: beating(peer, **wrong), beats)
        for asked in (
            joining(group, protocol_type="other"),
            joining(group, protocols=[JoinGroupRequestProtocol("other", b"")]),
            joining(group, GHOST),
        ):
            theirs, ours = (peer.ask(asked, version) for peer in twins)
            assert ours.error_code == theirs.error_code != 0


@pytest.mark.parametrize(
    "details",
    [
        {"group": ""},
        {"member_id": GHOST},
        {"session_timeout_ms": 1},
        {"session_timeout_ms": 10**9},
        {"protocols": []},
        {"protocol_type": ""},
    ],
)
def test_invalid_joins(twins: Twins, details: dict[str, Any]) -> None:
    for version in twins.versions(JoinGroupRequest):
        asked = joining(**{"group": "wrongly-joined"} | details)
        theirs, ours = (peer.ask(asked, version) for peer in twins)
        assert ours.error_code == theirs.error_code != 0


def test_leaving(twins: Twins) -> None:
    joined(twins, "left", 9)
    for version in twins.versions(LeaveGroupRequest):
        for group, member, instance in (
            *(("left", GHOST, None), ("none", GHOST, None), ("", GHOST, None)),
            *(("left", "", "instance"), ("left", GHOST, "instance")),
        ):
            asked = LeaveGroupRequest(group, member, [MemberIdentity(member, instance)])
            twins.agree(asked, version)
    twins.agree(LeaveGroupRequest("left", members=[]), 5)
    for _ in range(2):
        twins.agree(lambda peer: LeaveGroupRequest("left", members=[MemberIdentity(member_of(peer))]), 5)
    twins.agree(DescribeGroupsRequest(["left"]), 5)
    twins.agree(DeleteGroupsRequest(["left"]), 2)


def committing(
    peer: Peer,
    group: str,
    *,
    generation: int = -1,
    member: str = "",
    instance: str | None = None,
    topic: str = TOPIC,
    partition: int = 0,
    offset: int = 5,
    metadata: str | None = "noted",
) -> OffsetCommitRequest:
    committed = OffsetCommitRequestPartition(partition, offset, 3, metadata)
    topic_id = peer.topic_ids.get(topic, UNKNOWN_TOPIC_ID)
    topics = [OffsetCommitRequestTopic(topic, topic_id, [committed])]
    return OffsetCommitRequest(group, generation, member, instance, topics=topics)


COMMITS: dict[str, dict[str, Any]] = {
    "simple": {},
    "unknown topic": {"topic": "never"},
    "impossible topic": {"topic": "a b"},
    "unknown partition": {"partition": 9},
    "negative partition": {"partition": -1},
    "negative offset": {"offset": -1},
    "much metadata": {"metadata": "m" * 5000},
    "no metadata": {"metadata": None},
    "a member of nothing": {"member": GHOST},
    "a member of a generation": {"member": GHOST, "generation": 3},
    "a generation without members": {"generation": 3},
    "an instance": {"member": GHOST, "generation": 3, "instance": "instance"},
}


@pytest.mark.parametrize("case", COMMITS)
def test_committing(twins: Twins, case: str) -> None:
    details = COMMITS[case]
    for version in twins.versions(OffsetCommitRequest):
        for group in (f"new-{case}-{version}", "committed"):
            twins.agree(lambda peer, group=group: committing(peer, group, **details), version)


def test_committing_to_a_group_with_members(twins: Twins) -> None:
    joined(twins, "busy", 9)
    for peer in twins:
        assignments = [SyncGroupRequestAssignment(member_of(peer), b"")]
        peer.ask(SyncGroupRequest("busy", 1, member_of(peer), None, "consumer", "range", assignments), 5)
    for version in twins.versions(OffsetCommitRequest):
        twins.agree(lambda peer: committing(peer, "busy", generation=1, member=member_of(peer)), version)
        twins.agree(lambda peer: committing(peer, "busy", generation=9, member=member_of(peer)), version)
        twins.agree(lambda peer: committing(peer, "busy", generation=1, member=GHOST), version)
        twins.agree(lambda peer: committing(peer, "busy"), version)


def test_reading_offsets(twins: Twins) -> None:
    for peer in twins:
        for partition in (0, 1):
            peer.ask(committing(peer, "reading", partition=partition, metadata=f"of {partition}"), 9)

    def asked(
        peer: Peer, group: str, topics: dict[str, list[int]] | None, stable: bool
    ) -> OffsetFetchRequest:
        old = new = None
        if topics is not None:
            old = [OffsetFetchRequestTopic(name, indexes) for name, indexes in topics.items()]
            new = [
                OffsetFetchRequestTopics(name, peer.topic_ids.get(name, UNKNOWN_TOPIC_ID), indexes)
                for name, indexes in topics.items()
            ]
        return OffsetFetchRequest(group, old, [OffsetFetchRequestGroup(group, topics=new)], stable)

    for version in twins.versions(OffsetFetchRequest):
        for group in ("reading", "nothing-read", ""):
            for topics in ({TOPIC: [0, 1, 9]}, {"never": [0]}, {}, None):
                if topics is None and version < 2:
                    continue
                for stable in (False, True):
                    twins.agree(partial(asked, group=group, topics=topics, stable=stable), version)


def test_describing_and_deleting(twins: Twins) -> None:
    for peer in twins:
        peer.ask(committing(peer, "deleted"), 9)
    joined(twins, "undeletable", 9)
    twins.agree_in_all(DescribeGroupsRequest(["deleted", "none", ""]))
    twins.agree_in_all(DescribeGroupsRequest([]))
    twins.agree_in_all(DescribeGroupsRequest(["deleted", "none"], True), since=3)
    twins.agree_in_all(DeleteGroupsRequest(["undeletable", "none"]))
    for _ in range(2):
        twins.agree(DeleteGroupsRequest(["deleted"]), 2)
    twins.agree_in_all(DescribeGroupsRequest(["deleted"]))


def test_deleting_offsets(twins: Twins) -> None:
    for peer in twins:
        peer.ask(committing(peer, "forgetful"), 9)
    joined(twins, "not-forgetful", 9)
    for group, topic, partition in (
        ("forgetful", "never", 0),
        ("forgetful", TOPIC, 9),
        ("forgetful", TOPIC, 0),
        ("none", TOPIC, 0),
        ("", TOPIC, 0),
        ("not-forgetful", TOPIC, 0),
    ):
        topics = [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(partition)])]
        twins.agree(OffsetDeleteRequest(group, topics), 0)


def beat(group: str, member: str = "A" * 22, epoch: int = 0, **details: Any) -> ConsumerGroupHeartbeatRequest:
    asked: dict[str, Any] = {
        "rebalance_timeout_ms": 30_000,
        "subscribed_topic_names": [TOPIC],
        "topic_partitions": [],
    }
    return ConsumerGroupHeartbeatRequest(group, member, epoch, **asked | details)


@pytest.mark.parametrize(
    "details",
    [
        {"group": ""},
        {"rebalance_timeout_ms": -1},
        {"subscribed_topic_names": None},
        {"topic_partitions": None},
        {"topic_partitions": [TopicPartitions(UNKNOWN_TOPIC_ID, [0])]},
        {"epoch": -3},
        {"epoch": 5},
        {"epoch": -1},
        {"epoch": -2},
        {"server_assignor": "unknown"},
        {"server_assignor": ""},
        {"instance_id": ""},
        {"rack_id": ""},
    ],
)
def test_invalid_heartbeats(twins: Twins, details: dict[str, Any]) -> None:
    asked = beat(**{"group": "wrongly-beaten"} | details)
    twins.agree_in_all(asked)


def test_heartbeats_to_the_wrong_kind_of_group(twins: Twins) -> None:
    for peer in twins:
        assert peer.ask(beat("of-consumers"), 1).error_code == 0
    twins.agree_in_all(DescribeGroupsRequest(["of-consumers"]))
    twins.agree_in_all(DeleteGroupsRequest(["of-consumers"]))
    twins.agree(HeartbeatRequest("of-consumers", 1, GHOST), 4)
    twins.agree(lambda peer: committing(peer, "of-consumers"), 9)
    twins.agree(lambda peer: committing(peer, "of-consumers", generation=77, member="A" * 22), 9)
    twins.agree(lambda peer: committing(peer, "of-consumers", generation=77, member="A" * 22), 8)
    twins.agree_in_all(ConsumerGroupDescribeRequest(["none", ""], True))
