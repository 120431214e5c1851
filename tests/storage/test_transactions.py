"""Transactions in a log: stable offsets, aborted ranges, and which producers may begin and end one."""

import pytest

from millrace.config import LogConfig
from millrace.errors import Error, KafkaError
from millrace.storage.append_origin import AppendOrigin
from millrace.storage.producer_state import MAX_EPOCH
from millrace.wire.control_batch import EndMarker, read_end_marker
from millrace.wire.records import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    Record,
    build_batch,
    iterate_batches,
    read_header,
)

from ..transactional import TransactionalProducer, read_committed, transactional_batch


@pytest.fixture
def log(open_log):
    return open_log()


@pytest.fixture
def producer(log, clock):
    return TransactionalProducer(log, clock)


@pytest.fixture
def other(log, clock):
    return TransactionalProducer(log, clock, producer_id=2)


def refusal(action, *arguments, **options):
    with pytest.raises(KafkaError) as raised:
        action(*arguments, **options)
    return raised.value.error


def verified(producer, *, sequence=0, bumps_epochs=False):
    """Ask as a broker does before a transaction's first batch."""
    batch = transactional_batch(
        [b"v"],
        producer.clock.now_ms(),
        producer_id=producer.producer_id,
        epoch=producer.epoch,
        sequence=sequence,
    )
    now_ms = producer.clock.now_ms()
    return producer.log.producers.begins_transaction(read_header(batch), now_ms, bumps_epochs=bumps_epochs)


# What is stable


def test_the_log_is_stable_up_to_its_first_open_transaction(log, producer, other, make_batch):
    log.append(make_batch(3), 0)
    assert log.last_stable_offset == 3
    producer.send(b"a")
    other.send(b"b")
    assert log.last_stable_offset == 3
    producer.commit()
    assert log.last_stable_offset == 4
    other.abort()
    assert log.last_stable_offset == log.log_end_offset == 7


def test_a_second_transaction_of_a_producer_starts_where_it_starts(log, producer):
    producer.send(b"a")
    producer.commit()
    producer.send(b"b", b"c")
    producer.send(b"d")
    assert log.last_stable_offset == 2


def test_an_open_transaction_whose_start_was_deleted_is_stable_from_the_logs_start(log, producer):
    producer.send(b"a", b"b", b"c")
    log.delete_records_before(2)
    assert log.last_stable_offset == 2


def test_plain_and_idempotent_records_do_not_hold_readers_up(log, make_batch):
    log.append(make_batch(2), 0)
    log.append(make_batch(2, producer_id=5, producer_epoch=0, base_sequence=0), 0)
    assert log.last_stable_offset == 4


# What readers of committed records see


def test_only_committed_records_are_seen_and_in_the_order_of_the_log(log, producer, other, make_batch):
    producer.send(b"a1")
    other.send(b"b1")
    log.append(make_batch(1, value=lambda _: b"plain"), 0)
    producer.send(b"a2")
    other.abort()
    assert read_committed(log) == []
    producer.commit()
    other.send(b"b2")
    other.commit()
    producer.send(b"open")
    assert [value for _, value in read_committed(log)] == [b"a1", b"plain", b"a2", b"b2"]


def test_aborted_transactions_are_told_for_the_range_that_is_read(log, producer, other):
    producer.send(b"a")
    other.send(b"b")
    producer.abort()
    other.abort()
    producer.send(b"c")
    producer.abort()
    assert log.aborted_transactions(0, log.log_end_offset) == [(1, 0, 2, 1), (2, 1, 3, 4), (1, 4, 5, 6)]
    assert log.aborted_transactions(0, 1) == [(1, 0, 2, 1)]
    assert log.aborted_transactions(3, 4) == [(2, 1, 3, 4)]
    assert log.aborted_transactions(4, 6) == [(1, 4, 5, 6)]


def test_an_empty_transaction_leaves_a_marker_and_nothing_to_tell(log, producer):
    producer.abort()
    assert log.log_end_offset == 1
    assert log.aborted_transactions(0, 1) == []
    assert not list(log.directory.glob("*.txnindex"))


def test_an_abort_in_a_later_segment_is_told_to_readers_of_an_earlier_one(open_log, clock, make_batch):
    log = open_log(LogConfig(segment_bytes=500))
    producer = TransactionalProducer(log, clock)
    producer.send(b"a")
    while len(log.segments) < 4:
        log.append(make_batch(), 0)
    producer.abort()
    assert log.aborted_transactions(0, 1) == [(1, 0, log.log_end_offset - 1, log.log_end_offset)]
    # Everything but the aborted record at the start and the marker at the end.
    offsets = [offset for offset, _ in read_committed(log, max_bytes=100)]
    assert offsets == list(range(1, log.log_end_offset - 1))


def test_aborted_transactions_go_with_their_segment(open_log, clock):
    log = open_log(LogConfig(segment_bytes=500, retention_bytes=600))
    producer = TransactionalProducer(log, clock)
    while len(log.segments) < 4:
        producer.send(b"a" * 50)
        producer.abort()
    assert (log.directory / f"{0:020d}.txnindex").exists()
    retired = {path.name for path in log.apply_retention()}
    assert f"{0:020d}.txnindex.deleted" in retired
    assert not (log.directory / f"{0:020d}.txnindex").exists()
    assert read_committed(log) == []


# Markers


def test_a_marker_is_a_control_batch(log, producer):
    producer.send(b"a")
    appended = producer.commit(coordinator_epoch=4)
    content = log.read(appended.base_offset, 1000, min_one_batch=True).read()
    ((header, batch),) = iterate_batches(content)
    assert header.is_control and header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.leader_epoch) == (1, 0, 0)
    assert read_end_marker(batch) == EndMarker(committed=True, coordinator_epoch=4)


@pytest.mark.parametrize(
    "config",
    [
        LogConfig(cleanup_policy=("compact",)),
        LogConfig(compression_type="gzip"),
        LogConfig(message_timestamp_type="LogAppendTime"),
    ],
)
def test_markers_fit_into_any_topic(open_log, clock, config):
    log = open_log(config)
    producer = TransactionalProducer(log, clock)
    producer.send(b"a")
    producer.abort()
    header, batch = list(iterate_batches(log.read(0, 1000, min_one_batch=True).read()))[-1]
    assert header.is_control and header.codec == 0
    assert read_end_marker(batch) == EndMarker(committed=False, coordinator_epoch=0)
    assert read_committed(log) == []


def test_clients_may_not_write_markers(log):
    marker = build_batch(
        [Record(0, 0, b"\0\0\0\1", b"\0\0\0\0\0\0")],
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        attributes=CONTROL_BIT | TRANSACTIONAL_BIT,
    )
    for origin in (AppendOrigin.CLIENT, AppendOrigin.TRANSACTION):
        assert refusal(log.append, memoryview(marker), 0, origin) is Error.INVALID_RECORD


def test_a_marker_that_cannot_be_written_ends_nothing(log, producer, disk):
    producer.send(b"a")
    disk.fail_next_write()
    assert refusal(producer.abort) is Error.KAFKA_STORAGE_ERROR
    assert log.last_stable_offset == 0
    producer.abort()
    assert log.aborted_transactions(0, 2) == [(1, 0, 1, 2)]


def test_a_coordinator_that_was_replaced_cannot_end_a_transaction(producer):
    producer.commit(coordinator_epoch=3)
    producer.send(b"a")
    assert refusal(producer.commit, coordinator_epoch=2) is Error.TRANSACTION_COORDINATOR_FENCED
    producer.commit(coordinator_epoch=3)
    producer.commit(coordinator_epoch=4)


def test_the_marker_of_an_older_epoch_is_refused(log, clock, producer):
    newer = TransactionalProducer(log, clock, epoch=1)
    newer.send(b"a")
    assert refusal(producer.commit) is Error.INVALID_PRODUCER_EPOCH
    assert log.last_stable_offset == 0


def test_the_marker_of_a_newer_epoch_fences_the_producer(log, clock, producer):
    producer.send(b"a")
    TransactionalProducer(log, clock, epoch=1).abort()
    assert refusal(producer.send, b"b") is Error.INVALID_PRODUCER_EPOCH
    assert log.aborted_transactions(0, 2) == [(1, 0, 1, 2)]


# An epoch for each transaction (transaction version 2)


def test_each_transaction_has_its_epoch_and_restarts_its_sequences(producer):
    for value in (b"a", b"b", b"c"):
        producer.send(value)
        producer.end(committed=True, bump=True)
    assert producer.epoch == 3
    assert [value for _, value in read_committed(producer.log)] == [b"a", b"b", b"c"]
    assert refusal(producer.send, b"d", sequence=1) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_marker_of_an_earlier_transaction_does_not_end_the_next(log, producer):
    producer.send(b"a")
    producer.end(committed=True, bump=True)
    producer.send(b"b")
    late = (producer.producer_id, producer.epoch, True, 0, 0)
    assert refusal(log.append_marker, *late, transaction_version=2) is Error.INVALID_PRODUCER_EPOCH
    assert log.last_stable_offset == 2


def test_a_repeated_marker_is_accepted_once_nothing_is_open(log, producer):
    producer.send(b"a")
    producer.end(committed=False, bump=True)
    repeated = (producer.producer_id, producer.epoch, False, 0, 0)
    log.append_marker(*repeated, transaction_version=2)
    assert log.aborted_transactions(0, 3) == [(1, 0, 1, 2)]
    assert log.last_stable_offset == 3


# Who may write


def test_a_transaction_needs_a_transactional_id(log, clock):
    batch = transactional_batch([b"a"], clock.now_ms())
    assert refusal(log.append, batch, 0) is Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_within_a_transaction_nothing_may_be_written_outside_of_it(producer, make_batch):
    producer.send(b"a")
    plain = make_batch(1, producer_id=1, producer_epoch=0, base_sequence=1)
    assert refusal(producer.log.append, plain, 0) is Error.INVALID_TXN_STATE
    producer.commit()
    producer.log.append(plain, 0)


def test_a_repeated_batch_is_known_after_its_transaction_has_ended(producer):
    sent = producer.send(b"a", b"b")
    producer.commit()
    again = producer.send(b"a", b"b", sequence=0)
    assert again.duplicate and again.base_offset == sent.base_offset
    assert producer.log.last_stable_offset == producer.log.log_end_offset


def test_a_coordinators_records_have_no_sequence_numbers(log, clock):
    batch = memoryview(
        build_batch(
            [Record(0, clock.now_ms(), b"k", b"v")],
            producer_id=1,
            producer_epoch=2,
            attributes=TRANSACTIONAL_BIT,
        )
    )
    assert refusal(log.append, batch, 0, AppendOrigin.TRANSACTION) is Error.INVALID_RECORD
    for offset in range(3):
        assert log.append(batch, 0, AppendOrigin.COORDINATOR).base_offset == offset
    assert log.last_stable_offset == 0
    log.append_marker(1, 2, True, 0, 0)
    assert log.last_stable_offset == 4


def test_a_coordinators_records_of_an_older_epoch_are_refused(log, clock):
    log.append_marker(1, 5, False, 0, 0)
    batch = build_batch(
        [Record(0, clock.now_ms(), b"k", b"v")], producer_id=1, producer_epoch=4, attributes=TRANSACTIONAL_BIT
    )
    assert refusal(log.append, memoryview(batch), 0, AppendOrigin.COORDINATOR) is Error.INVALID_PRODUCER_EPOCH


def test_the_last_epoch_of_all_ends_its_transaction_itself(log, clock):
    """No epoch is left that the marker could have instead."""
    producer = TransactionalProducer(log, clock, epoch=MAX_EPOCH)
    producer.send(b"a")
    log.append_marker(producer.producer_id, MAX_EPOCH, True, 0, 0, transaction_version=2)
    assert log.last_stable_offset == log.log_end_offset == 2


# Verification


def test_only_the_first_batch_of_a_transaction_is_verified(producer):
    assert verified(producer)
    producer.send(b"a")
    assert not verified(producer, sequence=1)
    producer.commit()
    assert verified(producer, sequence=1)


def test_a_new_epoch_is_verified_although_an_old_one_has_an_open_transaction(log, clock, producer):
    producer.send(b"a")
    assert verified(TransactionalProducer(log, clock, epoch=1))


def test_a_batch_behind_one_that_was_refused_is_refused_too(producer):
    """The first of several batches in flight was not verified; the others must not come before it."""
    verified(producer, sequence=0)
    verified(producer, sequence=1)
    assert refusal(producer.send, b"b", sequence=1) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    producer.send(b"a", sequence=0)
    producer.send(b"b", sequence=1)


def test_with_an_epoch_per_transaction_an_unknown_producer_starts_at_zero(producer):
    verified(producer, sequence=7, bumps_epochs=True)
    assert refusal(producer.send, b"a", sequence=7) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_without_it_an_unknown_producer_may_continue(producer):
    verified(producer, sequence=7)
    assert producer.send(b"a", sequence=7).base_offset == 0


def test_a_refused_start_is_forgotten_with_time(log, clock, producer):
    verified(producer, sequence=0)
    clock.advance(24 * 60 * 60 * 1000 + 1)
    log.apply_retention()
    assert producer.send(b"b", sequence=1).base_offset == 0


def test_a_producer_with_an_open_transaction_does_not_expire(log, clock, producer):
    producer.send(b"a")
    clock.advance(48 * 60 * 60 * 1000)
    log.apply_retention()
    assert log.last_stable_offset == 0
    # It is still known, and so are its sequence numbers and its epoch.
    assert refusal(producer.send, b"b", sequence=7) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    producer.commit()
    assert log.last_stable_offset == 2
