"""A look at the records of a batch, where its header does not tell enough.

A topic's configuration may ask for it: a compacted topic needs keys, and records that the cleaner can read; a
codec is prescribed; records may not be too old. So may a header whose largest timestamp is out of bounds, as
each record at fault has to be named. What is looked into is checked whole, as Apache Kafka does.

All of this is a function of the batch and the topic's rules, so that a process can do it as well as the loop.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple, NoReturn, TypeAlias

from millrace.errors import Error, KafkaError
from millrace.storage.append_rules import AppendRules
from millrace.wire.compression import Codec, compress_up_to, decompress_up_to
from millrace.wire.record_checks import CheckedRecords, TooManyHeaders, check_records
from millrace.wire.records import (
    CODEC_MASK,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    assemble,
    iterate_payload,
    iterate_times,
    payload_of,
    read_header,
    wrapped,
)

# No more records at fault than this are named.
_MOST_NAMED_RECORDS = 1000

# What takes a microsecond or two on an ordinary machine.
_BATCH_UNITS = 10
_COPIED_BYTES_PER_UNIT = 8192
_PACKED_BYTES_PER_UNIT = 64
_UNPACKED_BYTES_PER_UNIT = 512
_RECOMPRESSED_BYTES_PER_UNIT = 8


class TooMuchWork(Exception):
    """To inspect a batch would take longer than the budget allows."""


class Budget:
    """The work that may be done at once, in units of about a microsecond."""

    __slots__ = ("units",)

    def __init__(self, units: int) -> None:
        self.units = units

    def take(self, units: int) -> None:
        if units > self.units:
            raise TooMuchWork
        self.units -= units


class InvalidRecords(KafkaError):
    """A batch refused for single records, which are named by their place in it."""

    def __init__(self, error: Error, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(error, message)
        self.record_errors = record_errors


class AcceptedBatch(NamedTuple):
    """A batch as it will be stored."""

    header: BatchHeader
    buffer: Buffer


class FoundRecord(NamedTuple):
    """A record found by its timestamp."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


Inspect: TypeAlias = Callable[[memoryview, BatchHeader, AppendRules, int], AcceptedBatch]
"""Looks into a batch by the rules of its topic, at a time in milliseconds."""


def inspect(
    records: Buffer, header: BatchHeader, rules: AppendRules, now_ms: int, budget: Budget | None = None
) -> AcceptedBatch:
    """Check every record of a client's batch, and give it the topic's codec.

    Raises KafkaError where Kafka refuses the batch, and TooMuchWork where a budget is too small. A header
    whose largest timestamp is not that of its records is corrected.
    """
    try:
        payload, checked = _check(records, header, budget)
    except KafkaError as fault:
        raise KafkaError(Error.INVALID_RECORD, fault.message) from None
    corrected = header
    is_in_time = True
    if not rules.is_log_append_time:
        timestamps = {wrapped(header.base_timestamp + delta) for delta in checked.timestamp_deltas}
        is_in_time = all(map(_allowed_times(rules, now_ms).__contains__, timestamps - {NO_TIMESTAMP}))
        corrected = header._replace(max_timestamp=max(NO_TIMESTAMP, *timestamps))
    if not is_in_time or (checked.has_null_keys and rules.is_compacted):
        _refuse(payload, header, rules, now_ms)
    if rules.codec is not None and rules.codec is not header.codec:
        if budget is not None:
            budget.take(len(payload) // _RECOMPRESSED_BYTES_PER_UNIT)
        return recompress(payload, corrected, rules)
    if corrected != header:
        return _assembled(corrected, bytes(records[HEADER_BYTES:]))
    return AcceptedBatch(header, records)


def _check(records: Buffer, header: BatchHeader, budget: Budget | None) -> tuple[bytes, CheckedRecords]:
    """The records unpacked, and what is to know about them."""
    payload = _unpack(records, header, budget)
    most_headers = None if budget is None else budget.units
    try:
        return payload, check_records(payload, header.record_count, most_headers)
    except TooManyHeaders:
        raise TooMuchWork from None


def _unpack(records: Buffer, header: BatchHeader, budget: Budget | None) -> bytes:
    if budget is None:
        return payload_of(records, header)
    units = _BATCH_UNITS + header.record_count
    if not header.attributes & CODEC_MASK:
        budget.take(units + len(records) // _COPIED_BYTES_PER_UNIT)
        return bytes(records[HEADER_BYTES:])
    budget.take(units + len(records) // _PACKED_BYTES_PER_UNIT)
    most_bytes = budget.units * _UNPACKED_BYTES_PER_UNIT
    payload = decompress_up_to(header.codec, bytes(records[HEADER_BYTES:]), most_bytes)
    if payload is None:
        raise TooMuchWork
    budget.take(len(payload) // _UNPACKED_BYTES_PER_UNIT)
    return payload


def find_by_time(
    batch: Buffer, timestamp_ms: int, start_offset: int, budget: Budget | None = None
) -> FoundRecord | None:
    """The first record of a batch in a log that is not older than a timestamp nor before an offset."""
    header = read_header(batch)
    for offset, timestamp in iterate_times(_unpack(batch, header, budget), header):
        if timestamp >= timestamp_ms and offset >= start_offset:
            return FoundRecord(offset, timestamp, header.leader_epoch)
    return None


def _allowed_times(rules: AppendRules, now_ms: int) -> range:
    return range(now_ms - rules.before_max_ms, now_ms + rules.after_max_ms + 1)


def _refuse(payload: bytes, header: BatchHeader, rules: AppendRules, now_ms: int) -> NoReturn:
    """Name the records that have no key or are out of time."""
    faults = list(islice(_faults(payload, header, rules, now_ms), _MOST_NAMED_RECORDS))
    errors = [(number, message) for number, _, message in faults]
    if any(error is Error.INVALID_TIMESTAMP for _, error, _ in faults):
        raise InvalidRecords(
            Error.INVALID_TIMESTAMP, "One or more records have been rejected due to invalid timestamp", errors
        )
    raise InvalidRecords(Error.INVALID_RECORD, "One or more records have been rejected", errors)


def _faults(
    payload: bytes, header: BatchHeader, rules: AppendRules, now_ms: int
) -> Iterator[tuple[int, Error, str]]:
    times = _allowed_times(rules, now_ms)
    keyless = f"Compacted topic cannot accept message without key in topic partition {rules.partition}."
    for number, record in enumerate(iterate_payload(payload, header)):
        timestamp = record.timestamp
        if record.key is None and rules.is_compacted:
            yield number, Error.INVALID_RECORD, keyless
        elif not rules.is_log_append_time and timestamp != NO_TIMESTAMP and timestamp not in times:
            message = f"Timestamp {timestamp} of message with offset {number} is out of range. "
            message += f"The timestamp should be within [{times.start}, {times.stop - 1}]"
            yield number, Error.INVALID_TIMESTAMP, message


def recompress(payload: bytes, header: BatchHeader, rules: AppendRules) -> AcceptedBatch:
    """The batch of these records with the topic's codec."""
    codec = rules.codec or Codec.NONE
    packed = compress_up_to(codec, payload, rules.codec_level, rules.max_message_bytes - HEADER_BYTES)
    if packed is None:
        raise KafkaError(
            Error.MESSAGE_TOO_LARGE,
            f"The batch for {rules.partition} takes more than the maximum of {rules.max_message_bytes} bytes "
            f"when stored with {codec.name.lower()}",
        )
    return _assembled(header._replace(attributes=header.attributes & ~CODEC_MASK | codec), packed)


def stamp(batch: AcceptedBatch, now_ms: int) -> AcceptedBatch:
    """The batch as appended now: all its records take its largest timestamp, so they stay as they are."""
    header, buffer = batch
    stamped = header._replace(attributes=header.attributes | LOG_APPEND_TIME_BIT, max_timestamp=now_ms)
    return _assembled(stamped, bytes(buffer[HEADER_BYTES:]))


def _assembled(header: BatchHeader, packed: bytes) -> AcceptedBatch:
    batch = assemble(header, packed)
    return AcceptedBatch(read_header(batch), batch)
