"""Commits and fetches of a consumer group's offsets: which members may, and in which epoch."""

import asyncio

import pytest

from millrace.errors import Error, KafkaError
from millrace.groups.group import Commit
from millrace.groups.offsets import CommittedOffset

from .consumers import ASSIGNMENT_INTERVAL_MS, Consumer, cluster_of, group_of, settle
from .members import Coordinator


@pytest.fixture(autouse=True)
def orders(coordinator: Coordinator) -> None:
    cluster_of(coordinator).create_topic("orders", 4)


def commit(
    coordinator: Coordinator,
    member_id: str,
    epoch: int,
    index: int = 0,
    *,
    version: int = 9,
    is_transactional: bool = False,
) -> Error:
    by = Commit(member_id, None, epoch, version >= 9, is_transactional)
    offset = CommittedOffset(7, -1, "", coordinator.clock.now_ms())
    try:
        coordinator.groups.commit("readers", by, [(("orders", index), offset)])
    except KafkaError as error:
        return error.error
    return Error.NONE


def test_a_member_commits_in_its_epoch(coordinator: Coordinator) -> None:
    member = Consumer(coordinator)
    member.join()
    assert commit(coordinator, member.member_id, member.epoch) is Error.NONE
    assert commit(coordinator, member.member_id, member.epoch + 1) is Error.STALE_MEMBER_EPOCH
    assert commit(coordinator, "stranger", member.epoch) is Error.UNKNOWN_MEMBER_ID
    assert commit(coordinator, member.member_id, member.epoch, version=8) is Error.UNSUPPORTED_VERSION


def test_a_member_that_is_behind_commits_partitions_that_it_has_kept(coordinator: Coordinator) -> None:
    first, second = Consumer(coordinator), Consumer(coordinator)
    first.join()
    coordinator.advance(ASSIGNMENT_INTERVAL_MS)
    second.join()
    settle(coordinator, first, second)
    (kept, *_), (taken, *_) = first.indexes, second.indexes
    assert first.epoch == 2
    assert commit(coordinator, first.member_id, 1, kept) is Error.NONE
    assert commit(coordinator, first.member_id, 1, taken) is Error.STALE_MEMBER_EPOCH
    assert commit(coordinator, second.member_id, 1, taken) is Error.STALE_MEMBER_EPOCH


def test_partitions_that_are_being_revoked_can_still_be_committed(coordinator: Coordinator) -> None:
    first, second = Consumer(coordinator), Consumer(coordinator)
    first.join()
    coordinator.advance(ASSIGNMENT_INTERVAL_MS)
    second.join()
    first.beat()
    for index in range(4):
        assert commit(coordinator, first.member_id, first.epoch, index) is Error.NONE


def test_clients_outside_the_group_commit_only_while_it_is_empty(coordinator: Coordinator) -> None:
    member = Consumer(coordinator)
    member.join()
    assert commit(coordinator, "", -1) is Error.UNKNOWN_MEMBER_ID
    assert commit(coordinator, "", -1, is_transactional=True) is Error.NONE
    member.leave()
    assert commit(coordinator, "", -1) is Error.NONE


def test_members_fetch_in_their_epoch(coordinator: Coordinator) -> None:
    member = Consumer(coordinator)
    member.join()
    group = group_of(coordinator)
    group.validate_fetch(None, -1)
    group.validate_fetch(member.member_id, member.epoch)
    with pytest.raises(KafkaError) as stale:
        group.validate_fetch(member.member_id, member.epoch - 1)
    assert stale.value.error is Error.STALE_MEMBER_EPOCH
    with pytest.raises(KafkaError) as unknown:
        group.validate_fetch("stranger", 1)
    assert unknown.value.error is Error.UNKNOWN_MEMBER_ID


def test_offsets_of_subscribed_topics_are_kept(coordinator: Coordinator) -> None:
    member = Consumer(coordinator)
    member.join()
    commit(coordinator, member.member_id, member.epoch)
    assert coordinator.groups.delete_offsets("readers", [("orders", 0)]) == {
        ("orders", 0): Error.GROUP_SUBSCRIBED_TO_TOPIC
    }
    shard = coordinator.groups.runtime.shard_of("readers")
    coordinator.clock.advance(30 * 24 * 60 * 60 * 1000)
    coordinator.groups.expire(shard)
    assert shard.offsets.get("readers", "orders", 0) is not None
    member.leave()
    coordinator.groups.expire(shard)
    assert shard.offsets.get("readers", "orders", 0) is None
    assert coordinator.groups.find("readers") is None


async def test_unused_offsets_expire_by_themselves(coordinator: Coordinator) -> None:
    commit(coordinator, "", -1)
    coordinator.clock.advance(30 * 24 * 60 * 60 * 1000)
    expiring = asyncio.create_task(coordinator.groups.expire_forever())
    await asyncio.sleep(0)
    coordinator.timers.advance(coordinator.groups.config.offsets_retention_check_interval_ms - 1)
    await asyncio.sleep(0)
    assert coordinator.groups.find("readers") is not None
    coordinator.timers.advance(1)
    for _ in range(5):
        await asyncio.sleep(0)
    assert coordinator.groups.find("readers") is None
    expiring.cancel()
