"""A partition with several replicas: its high watermark, waits for it, and changes of leader."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millrace.clock import Clock
from millrace.config import LogConfig
from millrace.deferred import Deferred
from millrace.disk import Disk
from millrace.errors import Error, KafkaError
from millrace.replication.partition import UNKNOWN_LEADER_EPOCH, Partition, Role
from millrace.storage.append_origin import AppendOrigin
from millrace.storage.log import Log

from ..records import batch
from ..transactional import transactional_batch

ME, SECOND, THIRD = 1, 2, 3
ALL = (ME, SECOND, THIRD)


def new_partition(directory: Path, config: LogConfig | None = None) -> Partition:
    log = Log.open(directory / "orders-0", config or LogConfig(), clock=Clock(), disk=Disk())
    return Partition("orders", b"o" * 16, 0, log)


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[Partition]:
    """A leader with two followers in sync."""
    partition = new_partition(tmp_path)
    partition.become_leader(5, ALL, ALL, node_id=ME)
    yield partition
    partition.log.abandon()


def append(partition: Partition, *values: bytes) -> Deferred[None]:
    """Append records; resolves when they are committed."""
    appended = partition.append_as_leader(memoryview(batch(*(values or (b"v",)))))
    return partition.committed(appended.last_offset + 1)


def error_of(wait: Deferred[None]) -> Error:
    assert wait.resolved
    with pytest.raises(KafkaError) as raised:
        wait.result()
    return raised.value.error


def refusal(call: Callable[[], object]) -> Error:
    with pytest.raises(KafkaError) as raised:
        call()
    return raised.value.error


# The high watermark


def test_the_only_replica_commits_what_it_appends(partition: Partition) -> None:
    partition.become_leader(6, (ME,), (ME,), node_id=ME)
    assert append(partition).resolved
    assert partition.high_watermark == 1
    assert not partition.is_replicated


def test_a_fetch_commits_nothing_while_too_few_replicas_are_in_sync(tmp_path: Path) -> None:
    partition = new_partition(tmp_path, LogConfig(min_insync_replicas=2))
    partition.become_leader(5, ALL, (ME,), node_id=ME)
    wait = append(partition)
    partition.record_fetch(SECOND, 1)
    assert (partition.high_watermark, wait.resolved) == (0, False)
    partition.become_leader(5, ALL, (ME, SECOND), node_id=ME)
    assert (partition.high_watermark, wait.resolved) == (1, True)
    partition.log.abandon()


def test_a_record_is_committed_when_every_in_sync_replica_has_it(partition: Partition) -> None:
    wait = append(partition)
    assert (partition.high_watermark, wait.resolved) == (0, False)
    partition.record_fetch(SECOND, 1)
    assert (partition.high_watermark, wait.resolved) == (0, False)
    partition.record_fetch(THIRD, 1)
    assert partition.high_watermark == 1
    assert wait.resolved and wait.result() is None


def test_replicas_out_of_sync_do_not_count(partition: Partition) -> None:
    partition.become_leader(5, ALL, (ME, SECOND), node_id=ME)
    append(partition)
    partition.record_fetch(THIRD, 0)
    partition.record_fetch(SECOND, 1)
    assert partition.high_watermark == 1


def test_a_replica_that_leaves_the_in_sync_set_commits_what_waited_for_it(partition: Partition) -> None:
    wait = append(partition)
    partition.record_fetch(SECOND, 1)
    partition.become_leader(5, ALL, (ME, SECOND), node_id=ME)
    assert wait.resolved
    alone = append(partition)
    partition.become_leader(5, ALL, (ME,), node_id=ME)
    assert alone.resolved
    assert append(partition).resolved


def test_the_high_watermark_never_goes_back(partition: Partition) -> None:
    for _ in range(3):
        append(partition)
    for replica in (SECOND, THIRD):
        partition.record_fetch(replica, 2)
    partition.record_fetch(SECOND, 0)
    assert partition.high_watermark == 2
    partition.become_leader(6, ALL, ALL, node_id=ME)
    assert partition.high_watermark == 2


def test_positions_of_an_earlier_epoch_do_not_count(partition: Partition) -> None:
    for replica in (SECOND, THIRD):
        partition.record_fetch(replica, 0)
    append(partition)
    partition.record_fetch(SECOND, 1)
    partition.become_leader(6, ALL, ALL, node_id=ME)
    partition.record_fetch(THIRD, 1)
    assert partition.high_watermark == 0, "the second replica may have cut its log back meanwhile"
    partition.record_fetch(SECOND, 1)
    assert partition.high_watermark == 1


def test_records_that_the_only_replica_committed_stay_committed(partition: Partition) -> None:
    partition.become_leader(6, ALL, (ME,), node_id=ME)
    append(partition)
    partition.become_leader(7, ALL, ALL, node_id=ME)
    assert partition.high_watermark == 1
    append(partition)
    assert partition.high_watermark == 1


def test_a_fetch_of_a_broker_without_a_replica_is_refused(partition: Partition) -> None:
    assert refusal(lambda: partition.record_fetch(9, 0)) is Error.NOT_LEADER_OR_FOLLOWER


# min.insync.replicas


def test_nothing_is_committed_while_too_few_replicas_are_in_sync(tmp_path: Path) -> None:
    partition = new_partition(tmp_path, LogConfig(min_insync_replicas=2))
    partition.become_leader(0, ALL, (ME,), node_id=ME)
    assert partition.lacks_replicas
    wait = append(partition)
    assert not wait.resolved
    partition.become_leader(0, ALL, (ME, SECOND), node_id=ME)
    assert not partition.lacks_replicas
    partition.record_fetch(SECOND, 1)
    assert wait.resolved
    partition.log.abandon()


def test_min_insync_replicas_requires_no_more_replicas_than_exist(tmp_path: Path) -> None:
    partition = new_partition(tmp_path, LogConfig(min_insync_replicas=3))
    partition.become_leader(0, (ME,), (ME,), node_id=ME)
    assert append(partition).resolved
    partition.log.abandon()


def test_another_configuration_takes_effect_at_once(partition: Partition) -> None:
    partition.become_leader(5, ALL, (ME,), node_id=ME)
    partition.reconfigure(LogConfig(min_insync_replicas=2))
    assert partition.lacks_replicas
    wait = append(partition)
    partition.reconfigure(LogConfig(min_insync_replicas=1))
    assert wait.resolved


# Waiting for a commit


def test_waits_end_in_the_order_of_their_offsets(partition: Partition) -> None:
    ended: list[int] = []
    for number in (3, 1, 2):
        wait = partition.committed(number)
        wait.then(lambda _, number=number: ended.append(number))
    for _ in range(3):
        append(partition)
    for replica in (SECOND, THIRD):
        partition.record_fetch(replica, 2)
    assert ended == [1, 2]


def test_a_leader_that_resigns_fails_the_waits(partition: Partition) -> None:
    waits = [append(partition) for _ in range(3)]
    partition.become_follower(6, SECOND)
    assert {error_of(wait) for wait in waits} == {Error.NOT_LEADER_OR_FOLLOWER}


def test_cancelled_waits_do_not_pile_up(partition: Partition) -> None:
    append(partition)
    kept = partition.committed(1)
    for _ in range(1000):
        partition.committed(1).cancel()
    assert len(partition._commits._waiting) < 10
    for replica in (SECOND, THIRD):
        partition.record_fetch(replica, 1)
    assert kept.resolved


# Leading and following


def test_only_a_leader_appends(partition: Partition) -> None:
    partition.become_follower(6, SECOND)
    assert partition.role is Role.FOLLOWER
    assert refusal(lambda: append(partition)) is Error.NOT_LEADER_OR_FOLLOWER
    assert refusal(lambda: partition.write_marker(1, 0, True, 0)) is Error.NOT_LEADER_OR_FOLLOWER
    assert refusal(lambda: partition.record_fetch(THIRD, 0)) is Error.NOT_LEADER_OR_FOLLOWER
    partition.resign()
    assert partition.role is Role.OFFLINE
    assert refusal(lambda: append(partition)) is Error.NOT_LEADER_OR_FOLLOWER


def test_a_leader_neither_appends_as_follower_nor_truncates(partition: Partition) -> None:
    append(partition)
    assert refusal(lambda: partition.append_as_follower(memoryview(b""), 5, 0)) is Error.FENCED_LEADER_EPOCH
    assert refusal(lambda: partition.truncate_to(0)) is Error.NOT_LEADER_OR_FOLLOWER
    assert partition.log.log_end_offset == 1


def test_a_response_of_an_earlier_leader_is_refused(partition: Partition) -> None:
    partition.become_follower(7, SECOND)
    assert refusal(lambda: partition.append_as_follower(memoryview(b""), 6, 0)) is Error.FENCED_LEADER_EPOCH


def test_a_follower_adopts_the_leaders_high_watermark_up_to_its_own_end(
    partition: Partition, tmp_path: Path
) -> None:
    follower = new_partition(tmp_path / "follower")
    follower.become_follower(5, ME)
    for value in (b"a", b"b"):
        append(partition, value)
    piece = partition.log.read(0, 100, min_one_batch=True)
    assert piece is not None
    follower.append_as_follower(memoryview(piece.read()), 5, 2)
    assert (follower.log.log_end_offset, follower.high_watermark) == (piece.next_offset, piece.next_offset)
    follower.append_as_follower(memoryview(b""), 5, 0)
    assert follower.high_watermark == piece.next_offset
    follower.log.abandon()


def test_truncating_lowers_the_high_watermark(partition: Partition) -> None:
    partition.become_leader(6, ALL, (ME,), node_id=ME)
    for _ in range(3):
        append(partition)
    partition.become_follower(7, SECOND)
    assert partition.high_watermark == 3
    partition.truncate_to(1)
    assert (partition.log.log_end_offset, partition.high_watermark) == (1, 1)
    partition.become_leader(8, ALL, ALL, node_id=ME)
    assert partition.high_watermark == 1


def test_readers_of_committed_records_wait_for_the_marker_to_be_committed(partition: Partition) -> None:
    partition.append_as_leader(transactional_batch([b"a"], 0), AppendOrigin.TRANSACTION)
    marker = partition.write_marker(1, 0, True, 0)
    for replica in (SECOND, THIRD):
        partition.record_fetch(replica, 1)
    assert (partition.high_watermark, partition.last_stable_offset) == (1, 0)
    for replica in (SECOND, THIRD):
        partition.record_fetch(replica, marker + 1)
    assert partition.last_stable_offset == partition.high_watermark == 2


# Divergence


def test_an_epoch_without_records_ends_where_the_log_did(partition: Partition) -> None:
    append(partition)
    partition.become_leader(9, ALL, ALL, node_id=ME)
    assert partition.epoch_end_offset(9) == (9, 1)
    assert partition.epoch_end_offset(7) == (5, 1), "a follower may have records of an epoch unknown here"
    append(partition)
    assert partition.epoch_end_offset(7) == (5, 1)
    assert partition.epoch_end_offset(10) == (-1, -1)


def test_an_empty_log_has_no_record_of_any_epoch(partition: Partition) -> None:
    assert partition.epoch_end_offset(3) == (3, 0)


def test_an_unknown_epoch_has_no_end(partition: Partition) -> None:
    assert partition.epoch_end_offset(UNKNOWN_LEADER_EPOCH) == (-1, -1)


@pytest.mark.parametrize(
    ("epoch", "end_offset", "cut"),
    [
        (2, 3, 3),  # The leader's epoch 2 ended earlier than ours.
        (2, 9, 4),  # Ours ended earlier: the rest belongs to epochs that the leader does not know.
        (1, 3, 2),  # We have no records of epoch 1: the common part ends with epoch 0 at most.
    ],
)
def test_a_follower_truncates_where_the_logs_diverge(
    partition: Partition, epoch: int, end_offset: int, cut: int
) -> None:
    for leader_epoch in (0, 0, 2, 2, 4, 4):
        partition.log.append(memoryview(batch(b"v")), leader_epoch)
    partition.become_follower(6, SECOND)
    assert partition.divergence(epoch, end_offset) == cut
