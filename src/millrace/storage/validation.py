"""What a broker checks of a batch before it lets it into a log.

Nearly everything is in the batch's header, so a batch is neither unpacked nor iterated here. Records are
looked into only where the topic's configuration asks for it (a compacted topic needs keys, a codec is
prescribed, records may not be too old), or where the header shows a timestamp out of bounds and each record
at fault has to be named.
"""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from millrace.config import LogConfig
from millrace.config.options import LONG_MAX
from millrace.errors import Error, KafkaError
from millrace.storage.append_origin import AppendOrigin
from millrace.wire.checksum import crc32c
from millrace.wire.compression import CODECS_BY_NAME, Codec, compress
from millrace.wire.records import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_POSITION,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    RecordSpan,
    assemble,
    iterate_spans,
    payload_of,
    read_header,
)

# Length, attributes, two deltas, key and value lengths, header count: at least a byte each.
_SMALLEST_RECORD_BYTES = 7
# What the length field of a batch of any magic counts at least.
_SMALLEST_BATCH_LENGTH = 14
# A compressed batch does not show how many records it can hold. More than this, unless it is large itself,
# are there to keep a broker busy.
_MOST_RECORDS = 1_000_000
# Of the records at fault in a batch, this many are named.
_NAMED_RECORDS = 1000
_MARKS = CONTROL_BIT | TRANSACTIONAL_BIT
# The broker has just built these itself; they have no sequence numbers.
_BROKERS_OWN = (AppendOrigin.COORDINATOR, AppendOrigin.MARKER)


class InvalidRecords(KafkaError):
    """A batch refused for single records, which are named by their place in it."""

    def __init__(self, error: Error, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(error, message)
        self.record_errors = record_errors


class AppendRules:
    """The part of a topic's configuration that decides about a batch, made ready for the hot path."""

    __slots__ = (
        "after_max_ms",
        "before_max_ms",
        "codec",
        "codec_level",
        "is_compacted",
        "is_log_append_time",
        "limits_the_past",
        "looks_into_batches",
        "max_message_bytes",
        "partition",
    )

    def __init__(self, config: LogConfig, partition: str) -> None:
        self.partition = partition
        self.max_message_bytes = config.max_message_bytes
        self.before_max_ms = config.message_timestamp_before_max_ms
        self.after_max_ms = config.message_timestamp_after_max_ms
        self.limits_the_past = self.before_max_ms < LONG_MAX
        self.is_log_append_time = config.message_timestamp_type == "LogAppendTime"
        self.is_compacted = "compact" in config.cleanup_policy
        self.codec = CODECS_BY_NAME.get(config.compression_type)
        self.codec_level = {
            Codec.GZIP: config.compression_gzip_level,
            Codec.LZ4: config.compression_lz4_level,
            Codec.ZSTD: config.compression_zstd_level,
        }.get(self.codec or Codec.NONE)
        self.looks_into_batches = self.is_compacted or self.is_log_append_time or self.codec is not None


class AcceptedBatch(NamedTuple):
    """A batch as it will be stored."""

    header: BatchHeader
    buffer: Buffer


def check_header(
    records: memoryview, rules: AppendRules, now_ms: int, origin: AppendOrigin = AppendOrigin.CLIENT
) -> BatchHeader:
    """Accept what was sent for one partition by its header and checksum, or raise as Kafka does."""
    size = len(records)
    if size < HEADER_BYTES:
        raise _not_one_batch(records)
    header = read_header(records)
    if header.magic != MAGIC or header.length != size - LOG_OVERHEAD_BYTES:
        raise _not_one_batch(records)
    if header.base_offset != 0:
        raise _invalid(
            f"A batch appended to {rules.partition} must start at offset 0, not {header.base_offset}"
        )
    if size > rules.max_message_bytes:
        raise KafkaError(
            Error.MESSAGE_TOO_LARGE,
            f"The record batch size in the append to {rules.partition} is {size} bytes which exceeds the "
            f"maximum configured value of {rules.max_message_bytes}",
        )
    if origin in _BROKERS_OWN:
        return header
    if crc32c(records[ATTRIBUTES_POSITION:]) != header.crc:
        raise KafkaError(
            Error.CORRUPT_MESSAGE,
            f"Record is corrupt (its crc is not {header.crc}) in topic partition {rules.partition}",
        )
    attributes, count = header.attributes, header.record_count
    if count <= 0 or header.last_offset_delta != count - 1:
        raise _invalid(
            f"Inconsistent batch offset range [0, {header.last_offset_delta}] and count of records {count}"
        )
    if attributes & _MARKS:
        _check_marks(header)
    if header.producer_id != NO_PRODUCER_ID and (header.base_sequence < 0 or header.producer_id < 0):
        raise _invalid(
            f"Invalid sequence number {header.base_sequence} in a batch of producer id {header.producer_id}"
        )
    codec = attributes & CODEC_MASK
    if codec > Codec.ZSTD or (
        count > max(size, _MOST_RECORDS) if codec else size - HEADER_BYTES < count * _SMALLEST_RECORD_BYTES
    ):
        raise _invalid(
            f"A batch of {size} bytes cannot hold {count} records, or has an unknown codec ({codec})"
        )
    if not rules.is_log_append_time and (
        header.max_timestamp > now_ms + rules.after_max_ms
        or rules.limits_the_past
        or attributes & LOG_APPEND_TIME_BIT
    ):
        _check_timestamps(records, header, rules, now_ms)
    return header


def _check_marks(header: BatchHeader) -> None:
    if header.attributes & CONTROL_BIT:
        raise _invalid("Clients are not allowed to write control records")
    if header.producer_id == NO_PRODUCER_ID:
        raise KafkaError(
            Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "A transactional batch needs a producer id"
        )


def _invalid(message: str) -> KafkaError:
    return KafkaError(Error.INVALID_RECORD, message)


def _not_one_batch(records: memoryview) -> KafkaError:
    length = int.from_bytes(records[8:LOG_OVERHEAD_BYTES], signed=True)
    if len(records) >= LOG_OVERHEAD_BYTES and length < _SMALLEST_BATCH_LENGTH:
        return KafkaError(
            Error.CORRUPT_MESSAGE,
            f"Record size {length} is less than the minimum record overhead ({_SMALLEST_BATCH_LENGTH})",
        )
    magic = records[MAGIC_POSITION] if len(records) > MAGIC_POSITION else MAGIC
    if magic > MAGIC:
        return KafkaError(Error.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")
    if magic < MAGIC:
        return _invalid(f"Only record batches with magic version 2 are accepted, not {magic}")
    return _invalid("A produce request must hold exactly one record batch per partition")


def _check_timestamps(records: memoryview, header: BatchHeader, rules: AppendRules, now_ms: int) -> None:
    """Name every record whose timestamp is out of bounds."""
    if header.is_log_append_time:
        raise KafkaError(
            Error.INVALID_TIMESTAMP,
            f"Invalid timestamp type in a batch for {rules.partition}: only the broker sets LogAppendTime",
        )
    earliest, latest = now_ms - rules.before_max_ms, now_ms + rules.after_max_ms
    errors = []
    for number, span in enumerate(_spans(records, header)):
        timestamp = header.base_timestamp + span.timestamp_delta
        if timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            message = f"Timestamp {timestamp} of message with offset {number} is out of range. "
            errors.append((number, f"{message}The timestamp should be within [{earliest}, {latest}]"))
            if len(errors) == _NAMED_RECORDS:
                break
    if errors:
        raise InvalidRecords(
            Error.INVALID_TIMESTAMP, "One or more records have been rejected due to invalid timestamp", errors
        )


def _spans(records: memoryview, header: BatchHeader) -> Iterator[RecordSpan]:
    """The records of a client's batch; broken framing is the client's fault."""
    try:
        yield from iterate_spans(payload_of(records, header), header.record_count)
    except KafkaError as fault:
        raise _invalid(fault.message) from None


def look_into(
    records: memoryview,
    header: BatchHeader,
    rules: AppendRules,
    now_ms: int,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> AcceptedBatch:
    """Apply what the topic prescribes: keys, codec, timestamps of the broker."""
    # What the broker itself writes has its keys.
    if rules.is_compacted and origin not in _BROKERS_OWN:
        _check_keys(records, header, rules)
    buffer: Buffer = records
    if rules.codec is not None and rules.codec != header.codec and origin is not AppendOrigin.MARKER:
        header, buffer = _recompress(records, header, rules)
    if rules.is_log_append_time:
        header, buffer = _stamp(buffer, header, now_ms)
    return AcceptedBatch(header, buffer)


def _check_keys(records: memoryview, header: BatchHeader, rules: AppendRules) -> None:
    message = f"Compacted topic cannot accept message without key in topic partition {rules.partition}."
    without_key = (number for number, span in enumerate(_spans(records, header)) if span.key is None)
    errors = [(number, message) for number in islice(without_key, _NAMED_RECORDS)]
    if errors:
        raise InvalidRecords(Error.INVALID_RECORD, "One or more records have been rejected", errors)


def _recompress(records: memoryview, header: BatchHeader, rules: AppendRules) -> AcceptedBatch:
    codec = rules.codec or Codec.NONE
    try:
        payload = payload_of(records, header)
    except KafkaError as fault:
        raise _invalid(fault.message) from None
    attributes = header.attributes & ~CODEC_MASK | codec
    batch = assemble(header._replace(attributes=attributes), compress(codec, payload, rules.codec_level))
    if len(batch) > rules.max_message_bytes:
        raise KafkaError(
            Error.MESSAGE_TOO_LARGE,
            f"The batch for {rules.partition} is {len(batch)} bytes when stored with {codec.name.lower()}, "
            f"more than the maximum of {rules.max_message_bytes}",
        )
    return AcceptedBatch(read_header(batch), batch)


def _stamp(buffer: Buffer, header: BatchHeader, now_ms: int) -> AcceptedBatch:
    # All records take the batch's largest timestamp, so the records themselves stay as they are.
    stamped = header._replace(attributes=header.attributes | LOG_APPEND_TIME_BIT, max_timestamp=now_ms)
    batch = assemble(stamped, bytes(buffer[HEADER_BYTES:]))
    return AcceptedBatch(read_header(batch), batch)
