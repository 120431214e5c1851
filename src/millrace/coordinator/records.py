"""Records of the internal topics: messages behind a two-byte type or version."""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct as Layout
from typing import NamedTuple

from millrace.wire.codec import MalformedMessage, decode, encode
from millrace.wire.schema import Message, RecordKey

_PREFIX = Layout(">h")
KEY_VERSION = 0


class StateRecord(NamedTuple):
    """A change of a coordinator's state; without a value, what the key names is gone."""

    key: RecordKey
    value: Message | None
    value_version: int = 0
    unwritten: object = None
    """State that the schema of the record has no field for; see `Origin.unwritten`."""


class Origin(NamedTuple):
    """Origin of a replayed record; it has a producer id only within a transaction."""

    offset: int
    timestamp_ms: int
    producer_id: int = -1
    producer_epoch: int = -1
    unwritten: object = None
    """State that goes with the record but is only in memory; None if the record comes from the log."""


EncodedRecord = tuple[bytes, bytes | None]
"""The key and the value of a record as they stand in the log."""


Schemas = Mapping[int, tuple[type[RecordKey], type[Message]]]
"""By record type: the types of its keys and values."""


def key_prefix(record_type: int) -> bytes:
    """The first bytes of the keys of a record type."""
    return _PREFIX.pack(record_type)


def encode_key(key: RecordKey) -> bytes:
    return encode(key, KEY_VERSION, before=_PREFIX.pack(key.record_type))


def encode_value(value: Message, version: int) -> bytes:
    return encode(value, version, before=_PREFIX.pack(version))


def encode_record(record: StateRecord) -> EncodedRecord:
    value = None if record.value is None else encode_value(record.value, record.value_version)
    return encode_key(record.key), value


def decode_record(schemas: Schemas, key: bytes, value: bytes | None) -> StateRecord | None:
    """The record behind the bytes; None for a type that this broker does not know."""
    schema = schemas.get(_prefix(key))
    if schema is None:
        return None
    key_class, value_class = schema
    decoded_key, _ = decode(key_class, KEY_VERSION, key, _PREFIX.size)
    if value is None:
        return StateRecord(decoded_key, None)
    version = _prefix(value)
    decoded_value, _ = decode(value_class, version, value, _PREFIX.size)
    return StateRecord(decoded_key, decoded_value, version)


def _prefix(content: bytes) -> int:
    if len(content) < _PREFIX.size:
        raise MalformedMessage("a record of an internal topic is cut short")
    (number,) = _PREFIX.unpack_from(content)
    return int(number)
