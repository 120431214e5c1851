"""Idempotent producers: sequences, repetitions, epochs, and how they outlive a restart."""

import pytest

from millrace.config import LogConfig
from millrace.errors import Error, KafkaError
from millrace.storage.producer_snapshot import CorruptSnapshot, decode_snapshot, encode_snapshot
from millrace.storage.producer_state import AppendedBatch, Producer, ProducerStates
from millrace.wire.records import MAX_SEQUENCE


class SendsTo:
    """A producer that numbers its records."""

    def __init__(self, log, make_batch, producer_id=1, epoch=0):
        self.log = log
        self._make_batch = make_batch
        self._identity = {"producer_id": producer_id, "producer_epoch": epoch}

    def send(self, sequence, count=1):
        batch = self._make_batch(count, base_sequence=sequence, **self._identity)
        return self.log.append(batch, leader_epoch=0)

    def refusal(self, sequence, count=1):
        end = self.log.log_end_offset
        with pytest.raises(KafkaError) as raised:
            self.send(sequence, count)
        assert self.log.log_end_offset == end
        return raised.value.error


@pytest.fixture
def producer(open_log, make_batch):
    return SendsTo(open_log(), make_batch)


def test_sequences_follow_each_other(producer):
    assert producer.send(0, 3).base_offset == 0
    assert producer.send(3).base_offset == 3
    assert producer.refusal(5) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_repeated_batch_returns_the_original_offset(producer):
    first = producer.send(0, 3)
    producer.send(3, 2)
    again = producer.send(0, 3)
    assert again.duplicate
    assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset)
    assert producer.log.log_end_offset == 5


def test_the_last_five_batches_are_known(producer):
    for sequence in range(7):
        producer.send(sequence)
    assert [producer.send(sequence).base_offset for sequence in range(2, 7)] == [2, 3, 4, 5, 6]
    assert producer.refusal(1) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_that_overlaps_one_in_the_log_is_out_of_order(producer):
    producer.send(0, 3)
    assert producer.refusal(0, 2) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.refusal(2, 2) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_starts_anywhere(producer):
    assert producer.send(1000).base_offset == 0
    assert producer.send(1001).base_offset == 1


def test_sequences_continue_from_zero_after_the_largest(producer):
    producer.send(MAX_SEQUENCE - 1, 1)
    producer.send(MAX_SEQUENCE, 3)
    producer.send(2)
    assert producer.send(MAX_SEQUENCE, 3).duplicate


def test_a_new_epoch_starts_at_zero_and_fences_the_old(producer, make_batch):
    producer.send(0, 5)
    newer = SendsTo(producer.log, make_batch, epoch=1)
    assert newer.refusal(5) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    newer.send(0)
    assert producer.refusal(5) is Error.INVALID_PRODUCER_EPOCH


def test_producers_do_not_disturb_each_other(producer, make_batch):
    other = SendsTo(producer.log, make_batch, producer_id=2)
    for sequence in range(3):
        producer.send(sequence)
        other.send(sequence)
    assert producer.send(2).base_offset == 4
    assert other.send(2).base_offset == 5


def test_a_refused_or_failed_append_leaves_the_producer_as_it_was(producer, disk):
    producer.send(0)
    disk.fail_next_write()
    assert producer.refusal(1) is Error.KAFKA_STORAGE_ERROR
    assert not producer.send(1).duplicate


@pytest.mark.parametrize("clean", [True, False])
def test_all_five_batches_are_known_after_a_restart(producer, make_batch, open_log, clean):
    for sequence in range(8):
        producer.send(sequence)
    producer.log.close() if clean else producer.log.abandon()
    restarted = SendsTo(open_log(clean=clean), make_batch)
    assert [restarted.send(sequence).base_offset for sequence in range(3, 8)] == [3, 4, 5, 6, 7]
    assert restarted.refusal(9) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert restarted.send(8).base_offset == 8


@pytest.mark.parametrize("clean", [True, False])
def test_producers_are_known_across_rolls_and_restarts(open_log, make_batch, clean):
    config = LogConfig(segment_bytes=1000)
    sender = SendsTo(open_log(config), make_batch)
    quiet = SendsTo(sender.log, make_batch, producer_id=2)
    quiet.send(0)
    for sequence in range(30):
        sender.send(sequence)
    assert len(sender.log.segments) > 3
    sender.log.close() if clean else sender.log.abandon()
    log = open_log(config, clean=clean)
    assert SendsTo(log, make_batch).send(29).base_offset == 30
    assert SendsTo(log, make_batch, producer_id=2).send(0).base_offset == 0


def test_without_snapshots_the_log_itself_is_replayed(open_log, make_batch):
    config = LogConfig(segment_bytes=1000)
    sender = SendsTo(open_log(config), make_batch)
    for sequence in range(30):
        sender.send(sequence)
    sender.log.close()
    for snapshot in sender.log.directory.glob("*.snapshot"):
        snapshot.write_bytes(snapshot.read_bytes()[:-1] + b"\xff")
    log = open_log(config, clean=True)
    assert SendsTo(log, make_batch).send(29).duplicate


def test_snapshots_stay_with_their_segments_and_one_at_the_end(open_log, make_batch):
    config = LogConfig(segment_bytes=1000)
    for restart in range(4):
        log = open_log(config, clean=bool(restart))
        sender = SendsTo(log, make_batch)
        for sequence in range(log.log_end_offset, log.log_end_offset + 7):
            sender.send(sequence)
        log.close()
    expected = {segment.base_offset for segment in log.segments[1:]} | {log.log_end_offset}
    snapshots = {int(path.stem) for path in log.directory.glob("*.snapshot")}
    assert expected <= snapshots
    # The one of the previous stop goes with the next start.
    assert len(snapshots - expected) <= 1


def test_a_longer_memory_of_other_batches_is_not_taken_over():
    """A replay that ended early, at a damaged batch, does not know the newest batches."""
    known, recent = Producer(1, 0), ProducerStates()
    known.add(AppendedBatch(5, 5, last_offset=5, offset_delta=0, timestamp=0))
    other = Producer(1, 0)
    for number in range(3):
        other.add(AppendedBatch(number, number, last_offset=number, offset_delta=0, timestamp=0))
    recent.restore(other)
    known.recall(recent)
    assert [batch.last_offset for batch in known.batches] == [5]


def test_producers_expire(open_log, make_batch, clock):
    log = open_log(producer_id_expiration_ms=1000)
    sender = SendsTo(log, make_batch)
    sender.send(0)
    clock.advance(1000)
    log.apply_retention()
    assert len(log.active_producers()) == 1
    clock.advance(1)
    log.apply_retention()
    assert log.active_producers() == []
    assert sender.send(77).base_offset == 1


def test_producers_expire_while_the_broker_is_down(open_log, make_batch, clock):
    log = open_log()
    SendsTo(log, make_batch).send(0)
    log.close()
    clock.advance(24 * 60 * 60 * 1000 + 1)
    assert open_log(clean=True).active_producers() == []


def test_a_snapshot_is_read_back(open_log, make_batch):
    log = open_log()
    for producer_id in (1, 2, 3):
        SendsTo(log, make_batch, producer_id, epoch=producer_id).send(5)
    content = encode_snapshot(log.producers)
    restored = decode_snapshot(content)
    assert [(p.producer_id, p.epoch, p.batches, p.last_timestamp) for p in restored] == [
        (p.producer_id, p.epoch, p.batches, p.last_timestamp) for p in log.active_producers()
    ]
    assert encode_snapshot(restored) == content


def test_a_damaged_snapshot_is_refused():
    content = encode_snapshot(ProducerStates())
    for damaged in (b"", content[:5], b"\0\2" + content[2:], content[:-1] + b"\1", content + b"\0"):
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(damaged)
