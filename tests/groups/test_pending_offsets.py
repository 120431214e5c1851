"""Offsets that an open transaction has committed, while their group or topic is deleted or expires."""

import pytest

from millrace.groups.coordinator import TransactionalCommit
from millrace.groups.group import Commit
from millrace.groups.offsets import NO_EXPIRY, CommittedOffset
from millrace.groups.shard import GroupShard

from .conftest import NewMember
from .members import GROUP, Coordinator

PRODUCER = TransactionalCommit(7, 0)
OUTSIDE = Commit("", None, -1, 9)
LONG_MS = 30 * 24 * 60 * 60 * 1000


def commit(coordinator: Coordinator, offset: int, transaction: TransactionalCommit | None = None) -> None:
    committed = CommittedOffset(
        offset=offset, commit_timestamp=coordinator.clock.now_ms(), expire_timestamp=NO_EXPIRY
    )
    offsets = [(("orders", 0), committed)]
    if transaction is None:
        coordinator.groups.commit(GROUP, OUTSIDE, offsets)
    else:
        by = OUTSIDE._replace(is_transactional=True)
        coordinator.groups.commit(GROUP, by, offsets, transaction)


def shard(coordinator: Coordinator) -> GroupShard:
    return coordinator.groups.runtime.shard_of(GROUP)


def end(coordinator: Coordinator) -> None:
    shard(coordinator).end_transaction(*PRODUCER, True)


def offset(coordinator: Coordinator) -> int | None:
    found = shard(coordinator).offsets.get(GROUP, "orders", 0)
    return None if found is None else found.offset


def test_an_offset_does_not_expire_while_a_transaction_is_about_to_replace_it(
    coordinator: Coordinator,
) -> None:
    commit(coordinator, 3)
    coordinator.advance(LONG_MS)
    commit(coordinator, 5, PRODUCER)
    coordinator.groups.expire(shard(coordinator))
    assert offset(coordinator) == 3
    end(coordinator)
    assert offset(coordinator) == 5


def test_an_empty_group_does_not_expire_while_a_transaction_is_about_to_commit_to_it(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    member = new_member()
    coordinator.stabilize(member)
    member.leave()
    assert coordinator.group.is_empty
    commit(coordinator, 5, PRODUCER)
    coordinator.advance(LONG_MS)
    coordinator.groups.expire(shard(coordinator))
    assert coordinator.groups.find(GROUP) is not None
    end(coordinator)
    assert offset(coordinator) == 5


@pytest.mark.parametrize("has_committed", [True, False])
def test_the_end_of_a_transaction_does_not_bring_back_the_offsets_of_a_deleted_topic(
    coordinator: Coordinator, has_committed: bool
) -> None:
    if has_committed:
        commit(coordinator, 3)
    commit(coordinator, 5, PRODUCER)
    coordinator.groups.forget_topic("orders")
    end(coordinator)
    assert offset(coordinator) is None


def test_the_end_of_a_transaction_does_not_bring_back_a_deleted_group(coordinator: Coordinator) -> None:
    committed = CommittedOffset(
        offset=1, commit_timestamp=coordinator.clock.now_ms(), expire_timestamp=NO_EXPIRY
    )
    # Something else keeps the group, so that it can be deleted at all.
    coordinator.groups.commit(GROUP, OUTSIDE, [(("payments", 0), committed)])
    commit(coordinator, 5, PRODUCER)
    coordinator.groups.delete(GROUP)
    end(coordinator)
    assert shard(coordinator).find(GROUP) is None
