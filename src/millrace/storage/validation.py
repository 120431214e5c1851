"""The checks of a batch that its header and its checksum allow, made before it gets into a log.

They take neither unpacking nor a look at the records; see inspection.py for those.
"""

from millrace.errors import Error, KafkaError
from millrace.storage.append_origin import AppendOrigin
from millrace.storage.append_rules import AppendRules
from millrace.wire.checksum import crc32c
from millrace.wire.compression import Codec
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
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
)

# Length, attributes, two deltas, key and value lengths, header count: at least a byte each.
_SMALLEST_RECORD_BYTES = 7
# The smallest length field of a batch, whatever its magic.
_SMALLEST_BATCH_LENGTH = 14
# A compressed batch does not show how many records it can hold. More than this, unless it is large itself,
# can only be meant to keep a broker busy.
_MOST_RECORDS = 1_000_000
_MARKS = CONTROL_BIT | TRANSACTIONAL_BIT
# The broker has just built these itself; they have no sequence numbers.
BROKERS_OWN = (AppendOrigin.COORDINATOR, AppendOrigin.MARKER)


def check_header(
    records: memoryview, rules: AppendRules, origin: AppendOrigin = AppendOrigin.CLIENT
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
    if origin in BROKERS_OWN:
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
    if attributes & LOG_APPEND_TIME_BIT and not rules.is_log_append_time:
        raise KafkaError(
            Error.INVALID_TIMESTAMP,
            f"Invalid timestamp type in a batch for {rules.partition}: only the broker sets LogAppendTime",
        )
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
