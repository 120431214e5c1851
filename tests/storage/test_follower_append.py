"""A follower's log: batches of its leader, kept as they are, and all that they imply."""

from collections.abc import Callable

import pytest

from millrace.config import LogConfig
from millrace.errors import Error, KafkaError
from millrace.storage.log import Log
from millrace.testing.clock import ManualClock
from millrace.testing.disk import FaultyDisk

from ..transactional import TransactionalProducer, read_committed
from .conftest import MakeBatch, OpenLog
from .log_state import batches_of, state_of

SMALL = LogConfig(segment_bytes=700, index_interval_bytes=100)
EPOCH = 3


def copy(leader: Log, follower: Log, epoch: int = EPOCH) -> None:
    """Fetch from the leader until the follower has everything."""
    while (piece := leader.read(follower.log_end_offset, 600, min_one_batch=True)) is not None:
        follower.append_as_follower(memoryview(piece.read()), epoch)


@pytest.fixture
def leader(open_log: OpenLog) -> Log:
    return open_log(SMALL, name="leader-0")


@pytest.fixture
def follower(open_log: OpenLog) -> Log:
    return open_log(SMALL, name="follower-0")


@pytest.fixture
def fill(leader: Log, clock: ManualClock, make_batch: MakeBatch) -> Callable[[], None]:
    """Gives the leader several segments and epochs, with everything that producers can write."""

    def fill_() -> None:
        one, two = TransactionalProducer(leader, clock, 1), TransactionalProducer(leader, clock, 2)
        for number in range(6):
            leader.append(
                make_batch(2, producer_id=7, producer_epoch=0, base_sequence=2 * number), number // 2
            )
            one.send(b"%d" % number, b"x" * 50)
            two.send(b"%d" % number)
            clock.advance(1000)
            one.end(committed=number % 2 == 0, bump=number == 3)
            leader.append(make_batch(3), number // 2)
        assert len(leader.segments) > 2

    return fill_


def test_a_follower_that_has_all_batches_has_the_leaders_state(
    leader: Log, follower: Log, fill: Callable[[], None]
) -> None:
    fill()
    copy(leader, follower)
    assert state_of(follower) == state_of(leader)
    assert read_committed(follower) == read_committed(leader)
    assert follower.last_stable_offset < follower.log_end_offset


def test_a_follower_that_becomes_leader_continues_where_the_leader_stopped(
    leader: Log, follower: Log, fill: Callable[[], None], clock: ManualClock, make_batch: MakeBatch
) -> None:
    fill()
    copy(leader, follower)
    repeated = follower.append(make_batch(2, producer_id=7, producer_epoch=0, base_sequence=10), EPOCH)
    assert repeated.duplicate
    with pytest.raises(KafkaError) as raised:
        follower.append(make_batch(1, producer_id=7, producer_epoch=0, base_sequence=14), EPOCH)
    assert raised.value.error is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    TransactionalProducer(follower, clock, 2).abort()
    assert follower.last_stable_offset == follower.log_end_offset


def test_a_restarted_follower_has_the_same_state(
    leader: Log, follower: Log, fill: Callable[[], None], open_log: OpenLog
) -> None:
    fill()
    copy(leader, follower)
    follower.abandon()
    assert state_of(open_log(SMALL, name="follower-0")) == state_of(leader)


def test_gaps_that_compaction_left_are_kept(leader: Log, follower: Log, make_batch: MakeBatch) -> None:
    for _ in range(3):
        leader.append(make_batch(2), 0)
    (_, first), _, (_, third) = list(batches_of(leader))
    follower.append_as_follower(memoryview(bytes(first) + bytes(third)), EPOCH)
    assert follower.log_end_offset == 6
    piece = follower.read(2, 1000, min_one_batch=True)
    assert piece is not None
    assert piece.read() == bytes(third)


def test_a_batch_that_the_responses_limit_cut_off_is_left_for_the_next_fetch(
    leader: Log, follower: Log, make_batch: MakeBatch
) -> None:
    for _ in range(2):
        leader.append(make_batch(1), 0)
    content = b"".join(bytes(batch) for _, batch in batches_of(leader))
    follower.append_as_follower(memoryview(content[:-1]), EPOCH)
    assert follower.log_end_offset == 1


def test_a_damaged_batch_is_refused_and_those_before_it_are_kept(
    leader: Log, follower: Log, make_batch: MakeBatch
) -> None:
    for _ in range(2):
        leader.append(make_batch(1), 0)
    content = bytearray(b"".join(bytes(batch) for _, batch in batches_of(leader)))
    content[-1] ^= 1
    with pytest.raises(KafkaError) as raised:
        follower.append_as_follower(memoryview(content), EPOCH)
    assert raised.value.error is Error.CORRUPT_MESSAGE
    assert follower.log_end_offset == 1
    copy(leader, follower)
    assert state_of(follower) == state_of(leader)


def test_bytes_that_are_no_batch_are_refused(follower: Log) -> None:
    with pytest.raises(KafkaError) as raised:
        follower.append_as_follower(memoryview(b"?" * 200), EPOCH)
    assert raised.value.error is Error.CORRUPT_MESSAGE


def test_offsets_that_the_follower_has_are_refused(leader: Log, follower: Log, make_batch: MakeBatch) -> None:
    leader.append(make_batch(2), 0)
    copy(leader, follower)
    (_, batch), *_ = batches_of(leader)
    with pytest.raises(KafkaError) as raised:
        follower.append_as_follower(memoryview(bytes(batch)), EPOCH)
    assert raised.value.error is Error.OFFSET_OUT_OF_RANGE
    assert follower.log_end_offset == 2


def test_a_batch_of_a_later_epoch_than_the_leaders_is_refused(
    leader: Log, follower: Log, make_batch: MakeBatch
) -> None:
    leader.append(make_batch(1), EPOCH + 1)
    with pytest.raises(KafkaError) as raised:
        copy(leader, follower)
    assert raised.value.error is Error.UNKNOWN_LEADER_EPOCH
    assert follower.log_end_offset == 0


def test_a_full_disk_leaves_the_followers_log_as_it_was(
    leader: Log, follower: Log, disk: FaultyDisk, make_batch: MakeBatch
) -> None:
    leader.append(make_batch(1), 0)
    copy(leader, follower)
    before = state_of(follower)
    leader.append(make_batch(1), 1)
    disk.fill(10)
    with pytest.raises(KafkaError) as raised:
        copy(leader, follower)
    assert raised.value.error is Error.KAFKA_STORAGE_ERROR
    assert state_of(follower) == before
    disk.free()
    copy(leader, follower)
    assert state_of(follower) == state_of(leader)


def test_a_batch_larger_than_the_followers_segments_gets_a_segment_of_its_own(
    open_log: OpenLog, follower: Log, make_batch: MakeBatch
) -> None:
    leader = open_log(name="leader-0")
    for size in (10, 1000, 10):
        leader.append(make_batch(1, size=size), 0)
    copy(leader, follower)
    assert [segment.base_offset for segment in follower.segments] == [0, 1, 2]
    assert state_of(follower) == state_of(leader)


def test_a_transaction_is_stable_when_its_marker_is_committed(
    leader: Log, clock: ManualClock, make_batch: MakeBatch
) -> None:
    leader.set_high_watermark(0)
    producer = TransactionalProducer(leader, clock)
    producer.send(b"a", b"b")
    leader.set_high_watermark(2)
    assert leader.last_stable_offset == 0
    producer.commit()
    leader.append(make_batch(1), 0)
    assert leader.last_stable_offset == 0, "another leader may not know of the marker"
    leader.set_high_watermark(3)
    assert leader.last_stable_offset == 3
    leader.set_high_watermark(None)
    assert leader.last_stable_offset == 4


def test_a_restarted_log_knows_which_markers_are_not_committed(
    leader: Log, clock: ManualClock, open_log: OpenLog
) -> None:
    producer = TransactionalProducer(leader, clock)
    producer.send(b"a")
    producer.commit()
    producer.send(b"b")
    producer.commit()
    leader.abandon()
    reopened = open_log(SMALL, name="leader-0", high_watermark=3)
    assert reopened.last_stable_offset == 2
    reopened.set_high_watermark(4)
    assert reopened.last_stable_offset == 4


def test_retention_keeps_records_that_are_not_committed(
    open_log: OpenLog, clock: ManualClock, make_batch: MakeBatch
) -> None:
    log = open_log(LogConfig(segment_bytes=400, retention_ms=1000))
    for _ in range(4):
        log.append(make_batch(1, size=200), 0)
    log.set_high_watermark(2)
    clock.advance(10_000)
    assert log.apply_retention()
    assert log.log_start_offset == 2
    log.set_high_watermark(4)
    log.apply_retention()
    assert log.log_start_offset == 4
