"""Batches that are refused before they reach the log, with Kafka's error codes."""

import struct

import pytest

from millrace.config import LogConfig
from millrace.errors import Error, KafkaError
from millrace.storage.inspection import InvalidRecords
from millrace.wire.checksum import crc32c
from millrace.wire.compression import Codec
from millrace.wire.records import (
    ATTRIBUTES_POSITION,
    CONTROL_BIT,
    CRC_POSITION,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    Record,
    assemble,
    build_batch,
    check_batch,
    payload_of,
    read_header,
)

from .. import crafted


def refusal(log, batch):
    with pytest.raises(KafkaError) as raised:
        log.append(memoryview(batch), leader_epoch=0)
    assert log.log_end_offset == 0
    assert log.size == 0
    return raised.value


def changed(batch, **fields):
    """A batch with other header fields and a right checksum."""
    return assemble(read_header(batch)._replace(**fields), bytes(batch[HEADER_BYTES:]))


@pytest.mark.parametrize(
    "fields",
    [
        {"base_offset": 5},
        {"record_count": 0},
        {"record_count": -1},
        {"record_count": 2},
        {"last_offset_delta": 1},
        {"last_offset_delta": -1},
        {"attributes": CONTROL_BIT},
        {"attributes": 6},
        {"producer_id": 7, "producer_epoch": 0, "base_sequence": -1},
        {"producer_id": -7, "producer_epoch": 0, "base_sequence": 1},
        {"record_count": 1000, "last_offset_delta": 999},
    ],
    ids=str,
)
def test_a_header_that_contradicts_itself_is_an_invalid_record(open_log, make_batch, fields):
    assert refusal(open_log(), changed(make_batch(), **fields)).error is Error.INVALID_RECORD


def test_nothing_or_several_batches_are_invalid(open_log, make_batch):
    log = open_log()
    batch = bytes(make_batch())
    for records in (b"", batch[:10], batch[:-1], batch + batch, batch + b"\0"):
        assert refusal(log, records).error is Error.INVALID_RECORD


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_refused_by_name(open_log, make_batch, magic):
    batch = bytearray(make_batch())
    batch[16] = magic
    answer = refusal(open_log(), batch)
    assert answer.error is Error.INVALID_RECORD
    assert "magic" in answer.message


def test_a_wrong_checksum_is_a_corrupt_message(open_log, make_batch):
    batch = make_batch()
    batch[-1] ^= 1
    assert refusal(open_log(), batch).error is Error.CORRUPT_MESSAGE


def test_max_message_bytes_is_the_most_a_batch_has(open_log, make_batch):
    batch = make_batch(size=500)
    log = open_log(LogConfig(max_message_bytes=len(batch) - 1))
    assert refusal(log, batch).error is Error.MESSAGE_TOO_LARGE
    log.config = LogConfig(max_message_bytes=len(batch))
    log.append(batch, leader_epoch=0)


def test_a_batch_that_grows_beyond_the_limit_by_recompression_is_refused(open_log, make_batch):
    batch = make_batch(size=50_000, codec=Codec.GZIP)
    log = open_log(LogConfig(compression_type="uncompressed", max_message_bytes=10_000))
    assert refusal(log, batch).error is Error.MESSAGE_TOO_LARGE


def test_a_compacted_topic_names_every_record_without_a_key(open_log, make_batch):
    log = open_log(LogConfig(cleanup_policy=("compact",)))
    answer = refusal(log, make_batch(4, key=lambda number: None if number % 2 else b"key"))
    assert isinstance(answer, InvalidRecords)
    assert answer.error is Error.INVALID_RECORD
    message = "Compacted topic cannot accept message without key in topic partition events-0."
    assert answer.record_errors == [(1, message), (3, message)]
    log.append(make_batch(2), leader_epoch=0)


def test_a_compacted_topic_looks_into_compressed_batches(open_log, make_batch):
    log = open_log(LogConfig(cleanup_policy=("compact", "delete")))
    answer = refusal(log, make_batch(1, key=lambda _: None, codec=Codec.ZSTD))
    assert isinstance(answer, InvalidRecords)


def test_broken_records_are_found_where_they_are_looked_into(open_log, make_batch):
    batch = bytearray(make_batch())
    batch[HEADER_BYTES] = 0x7E
    struct.pack_into(">I", batch, CRC_POSITION, crc32c(batch[ATTRIBUTES_POSITION:]))
    log = open_log(LogConfig(cleanup_policy=("compact",)))
    assert refusal(log, batch).error is Error.INVALID_RECORD


COMPACTED = LogConfig(cleanup_policy=("compact",))
# Whatever the producer uses, this topic unpacks it.
RECOMPRESSED = LogConfig(compression_type="snappy")
CODECS = [Codec.NONE, Codec.ZSTD]

SENT_BROKEN = {
    **crafted.BROKEN_RECORDS,
    "value past the end": crafted.BROKEN_VALUE,
    **{name: crafted.record(headers=headers) for name, headers in crafted.BROKEN_HEADERS.items()},
    **{
        f"tombstone with {name}": crafted.record(value=None, headers=headers)
        for name, headers in crafted.BROKEN_HEADERS.items()
    },
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("config", [COMPACTED, RECOMPRESSED], ids=["compacted", "recompressed"])
@pytest.mark.parametrize("fault", SENT_BROKEN)
def test_records_that_compaction_could_not_read_are_refused(open_log, fault, config, codec):
    batch = crafted.batch([SENT_BROKEN[fault]], codec=codec)
    assert refusal(open_log(config), batch).error is Error.INVALID_RECORD


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("offsets", crafted.WRONG_OFFSETS)
def test_offsets_that_are_not_the_records_places_are_refused(open_log, offsets, codec):
    deltas = crafted.WRONG_OFFSETS[offsets]
    batch = crafted.batch(map(crafted.record, deltas), count=len(deltas), codec=codec)
    assert refusal(open_log(COMPACTED), batch).error is Error.INVALID_RECORD


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("base", "deltas"), [(crafted.LAST_TIMESTAMP, (5, 6)), (-(2**63), (-5, -6)), (-(2**63), (0, 1))]
)
def test_timestamps_that_overflow_are_named(open_log, clock, base, deltas, codec):
    records = [crafted.record(number, timestamp_delta=delta) for number, delta in enumerate(deltas)]
    batch = crafted.batch(records, count=2, timestamp=base, max_timestamp=clock.now_ms(), codec=codec)
    answer = refusal(open_log(COMPACTED), batch)
    assert isinstance(answer, InvalidRecords)
    assert answer.error is Error.INVALID_TIMESTAMP
    assert [number for number, _ in answer.record_errors] == [0, 1]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("claimed", [5, -1, -7, 2**63 - 1])
def test_a_largest_timestamp_that_is_a_lie_is_corrected(open_log, clock, claimed, codec):
    now_ms = clock.now_ms()
    records = [crafted.record(0, timestamp_delta=-9), crafted.record(1, timestamp_delta=-2)]
    log = open_log(COMPACTED)
    log.append(
        memoryview(crafted.batch(records, count=2, timestamp=now_ms, max_timestamp=claimed, codec=codec)), 0
    )
    batch = log.read(0, 1000, min_one_batch=True).read()
    assert check_batch(batch).max_timestamp == now_ms - 2
    assert payload_of(batch, read_header(batch)) == b"".join(records)
    assert log.segments[-1].max_timestamp == now_ms - 2


def test_timestamps_before_the_epoch_count_as_none(open_log):
    log = open_log(COMPACTED)
    log.append(memoryview(crafted.batch([crafted.record()], timestamp=-5)), 0)
    assert log.segments[-1].max_timestamp == -1


def test_a_record_without_a_key_is_named_beside_one_that_is_too_new(open_log, clock):
    records = [
        crafted.record(0, key=None),
        crafted.record(1, timestamp_delta=10**10),
        crafted.record(2),
        crafted.record(3, key=None, timestamp_delta=10**10),
    ]
    answer = refusal(open_log(COMPACTED), crafted.batch(records, count=4, timestamp=clock.now_ms()))
    assert answer.error is Error.INVALID_TIMESTAMP
    assert [(number, "key" in message) for number, message in answer.record_errors] == [
        (0, True),
        (1, False),
        (3, True),
    ]


def test_timestamps_too_far_in_the_future_are_named(open_log, make_batch, clock):
    log = open_log(LogConfig(message_timestamp_after_max_ms=1000))
    answer = refusal(log, make_batch(3, timestamp=clock.now_ms() + 999))
    assert isinstance(answer, InvalidRecords)
    assert answer.error is Error.INVALID_TIMESTAMP
    assert [number for number, _ in answer.record_errors] == [2]
    log.append(make_batch(2, timestamp=clock.now_ms() + 999), leader_epoch=0)


def test_timestamps_too_far_in_the_past_are_named(open_log, make_batch, clock):
    log = open_log(LogConfig(message_timestamp_before_max_ms=1000))
    answer = refusal(log, make_batch(2, timestamp=clock.now_ms() - 1001))
    assert isinstance(answer, InvalidRecords)
    assert answer.error is Error.INVALID_TIMESTAMP
    assert [number for number, _ in answer.record_errors] == [0]


def test_a_record_that_is_older_than_the_first_is_named_too(open_log, clock):
    log = open_log(LogConfig(message_timestamp_before_max_ms=1000))
    ages = (0, 1001, 1000)
    records = [Record(n, clock.now_ms() - age, b"k", b"v") for n, age in enumerate(ages)]
    answer = refusal(log, build_batch(records))
    assert [number for number, _ in answer.record_errors] == [1]


def test_a_transactional_batch_needs_a_producer(open_log, make_batch):
    batch = changed(make_batch(), attributes=TRANSACTIONAL_BIT)
    assert refusal(open_log(), batch).error is Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_records_without_a_timestamp_are_never_too_old(open_log, make_batch):
    log = open_log(LogConfig(message_timestamp_before_max_ms=1000))
    log.append(make_batch(timestamp=-1), leader_epoch=0)


def test_only_the_broker_sets_log_append_time(open_log, make_batch):
    batch = changed(make_batch(), attributes=LOG_APPEND_TIME_BIT)
    assert refusal(open_log(), batch).error is Error.INVALID_TIMESTAMP


def test_log_append_time_does_not_care_about_the_clients_timestamps(open_log, make_batch):
    log = open_log(LogConfig(message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms=1))
    log.append(make_batch(timestamp=2**60), leader_epoch=0)
