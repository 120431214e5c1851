"""Transactions across restarts and crashes: open ones stay open, aborted ones stay known."""

import pytest

from millrace.config import LogConfig
from millrace.errors import Error, KafkaError
from millrace.storage.producer_snapshot import decode_snapshot, encode_snapshot

from ..transactional import TransactionalProducer, read_committed

SMALL = LogConfig(segment_bytes=600, index_interval_bytes=100)
CLEAN = pytest.mark.parametrize("clean", [True, False], ids=["restart", "kill -9"])


def reopen(open_log, log, clean, config=None):
    log.close() if clean else log.abandon()
    return open_log(config or log.config, clean=clean, recovery_point=log.recovery_point)


def live(log, clock):
    """A life with commits, aborts, and one transaction left open."""
    one, two = TransactionalProducer(log, clock, 1), TransactionalProducer(log, clock, 2)
    one.send(b"kept")
    two.send(b"dropped")
    one.commit()
    two.send(b"dropped")
    two.abort(coordinator_epoch=6)
    one.send(b"open")
    return one, two


@CLEAN
def test_an_open_transaction_is_open_after_a_restart(open_log, clock, clean):
    log = open_log()
    one, _ = live(log, clock)
    restarted = reopen(open_log, log, clean)
    assert restarted.last_stable_offset == 5
    assert [value for _, value in read_committed(restarted)] == [b"kept"]
    one.log = restarted
    one.send(b"still open")
    one.commit()
    assert [value for _, value in read_committed(restarted)] == [b"kept", b"open", b"still open"]


@CLEAN
def test_aborted_transactions_are_known_after_a_restart(open_log, clock, clean):
    log = open_log()
    live(log, clock)
    expected = log.aborted_transactions(0, log.log_end_offset)
    restarted = reopen(open_log, log, clean)
    assert restarted.aborted_transactions(0, log.log_end_offset) == expected == [(2, 1, 4, 5)]


@CLEAN
def test_coordinator_epochs_and_producer_epochs_survive(open_log, clock, clean):
    log = open_log()
    _, two = live(log, clock)
    two.end(committed=True, coordinator_epoch=6, bump=True)
    two.log = reopen(open_log, log, clean)
    with pytest.raises(KafkaError) as raised:
        two.commit(coordinator_epoch=5)
    assert raised.value.error is Error.TRANSACTION_COORDINATOR_FENCED
    two.epoch -= 1
    with pytest.raises(KafkaError) as raised:
        two.send(b"late")
    assert raised.value.error is Error.INVALID_PRODUCER_EPOCH


@CLEAN
def test_transactions_over_many_segments_survive(open_log, clock, make_batch, clean):
    log = open_log(SMALL)
    long_lived = TransactionalProducer(log, clock, 99)
    long_lived.send(b"long")
    for number in range(30):
        producer = TransactionalProducer(log, clock, number)
        producer.send(b"%d" % number, b"x")
        producer.end(committed=number % 3 == 0)
        if number == 15:
            log.flush()
    assert len(log.segments) > 5
    expected = log.aborted_transactions(0, log.log_end_offset)
    restarted = reopen(open_log, log, clean)
    assert restarted.last_stable_offset == 0
    assert restarted.aborted_transactions(0, log.log_end_offset) == expected
    long_lived.log = restarted
    long_lived.abort()
    values = [value for _, value in read_committed(restarted, max_bytes=200)]
    assert values == [value for number in range(0, 30, 3) for value in (b"%d" % number, b"x")]


def test_an_index_that_never_reached_the_disk_is_rebuilt(open_log, clock):
    """A power cut: the log was flushed up to a point, what is newer lost its index files."""
    log = open_log(SMALL)
    producers = [TransactionalProducer(log, clock, number) for number in range(20)]
    for number, producer in enumerate(producers):
        producer.send(b"x" * 40)
        producer.abort()
        if number == 7:
            log.flush()
    recovery_point, expected = log.recovery_point, log.aborted_transactions(0, log.log_end_offset)
    log.abandon()
    for segment in log.segments:
        index = segment.path(".txnindex")
        if segment.base_offset > recovery_point and index.exists():
            index.unlink()
    restarted = open_log(SMALL, recovery_point=recovery_point)
    assert restarted.aborted_transactions(0, log.log_end_offset) == expected
    assert read_committed(restarted) == []


def test_a_flush_makes_aborted_transactions_durable(open_log, clock):
    log = open_log()
    producer = TransactionalProducer(log, clock)
    producer.send(b"a")
    producer.abort()
    assert not log.segments[-1].path(".txnindex").exists()
    log.flush()
    assert log.segments[-1].path(".txnindex").stat().st_size == 34


def test_a_flush_that_cannot_write_the_index_is_no_flush(open_log, clock, disk):
    log = open_log()
    producer = TransactionalProducer(log, clock)
    producer.send(b"a")
    producer.abort()
    disk.fill(0)
    with pytest.raises(KafkaError):
        log.flush()
    disk.free()
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 2


@pytest.mark.parametrize("damage", [lambda content: content[:-3], lambda content: b"\xff" + content[1:]])
def test_a_damaged_index_is_rebuilt_even_after_a_clean_stop(open_log, clock, damage, caplog):
    log = open_log(SMALL)
    early = TransactionalProducer(log, clock, 77)
    early.send(b"early")
    while len(log.segments) < 4:
        producer = TransactionalProducer(log, clock, log.log_end_offset)
        producer.send(b"a" * 60)
        producer.abort()
    early.abort()
    expected = log.aborted_transactions(0, log.log_end_offset)
    log.close()
    index = log.segments[1].path(".txnindex")
    good = index.read_bytes()
    index.write_bytes(damage(good))
    restarted = open_log(SMALL, clean=True)
    assert "rebuilding" in caplog.text
    assert restarted.aborted_transactions(0, log.log_end_offset) == expected
    assert index.read_bytes() == good


def test_a_torn_tail_takes_its_transactions_with_it(open_log, clock):
    log = open_log()
    producer = TransactionalProducer(log, clock)
    producer.send(b"a")
    producer.abort()
    log.close()
    path = log.segments[-1].path(".log")
    path.write_bytes(path.read_bytes()[:-1])
    restarted = open_log()
    assert restarted.log_end_offset == 1
    assert restarted.last_stable_offset == 0
    assert restarted.aborted_transactions(0, 1) == []
    producer.log = restarted
    producer.commit()
    assert read_committed(restarted) == [(0, b"a")]


def test_a_snapshot_keeps_open_transactions(open_log, clock):
    log = open_log()
    live(log, clock)
    content = encode_snapshot(log.producers)
    restored = decode_snapshot(content)
    assert restored.first_open_offset == 5
    assert encode_snapshot(restored) == content


def test_a_coordinators_records_survive_in_a_snapshot(open_log, clock, make_batch):
    log = open_log()
    for producer_id in (3, 4):
        producer = TransactionalProducer(log, clock, producer_id, epoch=2)
        producer.commit()
    content = encode_snapshot(log.producers)
    assert [(p.producer_id, p.epoch, p.last_sequence, p.last_offset) for p in decode_snapshot(content)] == [
        (3, 2, -1, -1),
        (4, 2, -1, -1),
    ]
