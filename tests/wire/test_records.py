"""Record batches: our own round trips, and agreement with aiokafka's independent implementation."""

import struct

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.errors import Error, KafkaError
from millrace.wire import compression
from millrace.wire.checksum import crc32c
from millrace.wire.compression import Codec, compress, decompress
from millrace.wire.records import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    MAX_SEQUENCE,
    CorruptBatch,
    Record,
    advance_sequence,
    assemble,
    build_batch,
    check_batch,
    iterate_batches,
    iterate_records,
    iterate_times,
    payload_of,
    read_header,
)

NOW_MS = 1_700_000_000_000

headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=20)), max_size=3)
contents = st.none() | st.binary(max_size=200)
record_lists = st.lists(
    st.tuples(st.integers(-(10**9), 10**9), contents, contents, headers), min_size=1, max_size=30
)


def numbered(fields: list[tuple], base_offset: int = 0) -> list[Record]:
    return [
        Record(base_offset + number, NOW_MS + delta, key, value, tuple(record_headers))
        for number, (delta, key, value, record_headers) in enumerate(fields)
    ]


@given(record_lists, st.sampled_from(Codec), st.integers(0, 2**50))
@settings(deadline=None, max_examples=50)
def test_what_is_built_is_read_back(fields, codec, base_offset):
    records = numbered(fields, base_offset)
    batch = build_batch(records, codec=codec)
    header = check_batch(batch)
    assert list(iterate_records(batch)) == records
    assert header.record_count == len(records)
    assert header.codec is codec
    assert header.size == len(batch)
    assert header.next_offset == base_offset + len(records)
    assert header.max_timestamp == max(record.timestamp for record in records)


@given(record_lists, st.sampled_from(Codec))
@settings(deadline=None, max_examples=50)
def test_aiokafka_reads_our_batches(fields, codec):
    records = numbered(fields)
    (batch,) = _aiokafka_batches(build_batch(records, codec=codec))
    assert batch.validate_crc()
    theirs = [
        Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
        for record in batch
    ]
    assert theirs == records


def _aiokafka_batches(content: bytes):
    batches = MemoryRecords(content)
    while batches.has_next():
        yield batches.next_batch()


@pytest.mark.parametrize("codec", list(Codec))
def test_we_read_batches_of_aiokafka(codec):
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for number in range(50):
        builder.append(number, NOW_MS + number, b"k%d" % number, b"v" * number, [("h", b"x")])
    batch = bytes(builder.build())
    check_batch(batch)
    assert list(iterate_records(batch)) == [
        Record(number, NOW_MS + number, b"k%d" % number, b"v" * number, (("h", b"x"),))
        for number in range(50)
    ]


def test_every_flipped_bit_after_the_leader_epoch_is_noticed():
    batch = build_batch([Record(0, NOW_MS, b"key", b"value")])
    for position in range(CRC_POSITION, len(batch)):
        damaged = bytearray(batch)
        damaged[position] ^= 0x10
        with pytest.raises(CorruptBatch):
            check_batch(damaged)


def test_a_batch_of_the_wrong_size_or_magic_is_corrupt():
    batch = build_batch([Record(0, NOW_MS, None, b"value")])
    for damaged in (batch[:-1], batch + b"\0", batch[: HEADER_BYTES - 1], batch[:16] + b"\x01" + batch[17:]):
        with pytest.raises(CorruptBatch):
            check_batch(damaged)


def test_a_cut_off_last_batch_is_left_out():
    first = build_batch([Record(0, NOW_MS, None, b"first")])
    second = build_batch([Record(1, NOW_MS, None, b"second")])
    assert [bytes(batch) for _, batch in iterate_batches(first + second[:-1])] == [first]
    assert [bytes(batch) for _, batch in iterate_batches(first + second)] == [first, second]


def test_a_batch_with_an_impossible_length_is_corrupt():
    with pytest.raises(CorruptBatch):
        list(iterate_batches(struct.pack(">qi", 0, -5) + bytes(100)))


def test_log_append_time_is_the_time_of_every_record():
    batch = build_batch([Record(0, 5, None, b"a"), Record(1, 9, None, b"b")])
    stamped = assemble(
        read_header(batch)._replace(attributes=LOG_APPEND_TIME_BIT, max_timestamp=NOW_MS),
        batch[HEADER_BYTES:],
    )
    check_batch(stamped)
    assert [record.timestamp for record in iterate_records(stamped)] == [NOW_MS, NOW_MS]


def test_sequences_wrap_to_zero():
    assert advance_sequence(MAX_SEQUENCE, 1) == 0
    batch = build_batch(
        [Record(number, NOW_MS, None, b"") for number in range(3)],
        producer_id=1,
        producer_epoch=0,
        base_sequence=MAX_SEQUENCE - 1,
    )
    assert read_header(batch).last_sequence == 0


@given(record_lists, st.sampled_from([0, LOG_APPEND_TIME_BIT]))
@settings(deadline=None, max_examples=50)
def test_times_are_those_of_the_records(fields, attributes):
    batch = build_batch(numbered(fields, 1000), attributes=attributes)
    assert list(iterate_times(batch[HEADER_BYTES:], read_header(batch))) == [
        (record.offset, record.timestamp) for record in iterate_records(batch)
    ]


@given(st.binary(max_size=200), st.integers(0, 100), st.data())
@settings(deadline=None, max_examples=50)
def test_damaged_records_behind_a_right_checksum_are_read_or_refused(noise, at, data):
    batch = bytearray(build_batch([Record(0, NOW_MS, b"k" * 40, b"v" * 40, (("h", b"x"),))]))
    batch[HEADER_BYTES + at : HEADER_BYTES + at + len(noise)] = noise
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, CRC_POSITION, crc32c(batch[ATTRIBUTES_POSITION:]))
    try:
        list(iterate_records(bytes(batch)))
    except KafkaError as refusal:
        assert refusal.error is Error.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_noise_does_not_decompress(codec):
    with pytest.raises(KafkaError) as refusal:
        decompress(codec, b"\xff" * 100)
    assert refusal.value.error is Error.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY])
def test_a_batch_that_unpacks_to_too_much_is_refused(codec, monkeypatch):
    packed = compress(codec, bytes(1 << 20))
    monkeypatch.setattr(compression, "MAX_DECOMPRESSED_BYTES", 1 << 16)
    with pytest.raises(KafkaError) as refusal:
        decompress(codec, packed)
    assert refusal.value.error is Error.CORRUPT_MESSAGE


def test_snappy_is_written_in_xerial_framing_and_read_in_both():
    payload = b"some records " * 10_000
    packed = compress(Codec.SNAPPY, payload)
    assert packed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert decompress(Codec.SNAPPY, packed) == payload
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(payload))) == payload


def test_lz4_has_independent_blocks_and_no_content_checksum():
    flags = compress(Codec.LZ4, b"some records " * 10_000)[4]
    assert flags & 0b0010_0000
    assert not flags & 0b0000_0100


@pytest.mark.parametrize(
    ("codec", "levels"), [(Codec.GZIP, (-1, 1, 9)), (Codec.LZ4, (1, 17)), (Codec.ZSTD, (-5, 1, 22))]
)
def test_every_level_gives_the_records_back(codec, levels):
    payload = b"".join(b"record %d " % number for number in range(2000))
    for level in levels:
        assert decompress(codec, compress(codec, payload, level)) == payload


def test_payload_of_an_unknown_codec_is_corrupt():
    batch = build_batch([Record(0, NOW_MS, None, b"value")])
    header = read_header(batch)._replace(attributes=7)
    with pytest.raises(CorruptBatch):
        payload_of(batch, header)
