"""Keys and values as dump-log prints them: text, or decoded records of internal topics."""

import base64
import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

from millrace.wire.codec import MalformedMessage, decode
from millrace.wire.messages import consumer_group_records, group_records, transaction_records
from millrace.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from millrace.wire.messages.control_records import ControlRecordTypeSchema, EndTxnMarker
from millrace.wire.records import Record
from millrace.wire.schema import Array, Field, Fixed, Message, RecordKey, Struct, uuid, uuid_to_text

Decoded = tuple[str | None, str | None]
RecordDecoder = Callable[[Record], Decoded]

CONTROL_NAMES = {0: "ABORT", 1: "COMMIT"}
OTHER_CONTROL_NAMES = {
    2: "LeaderChange",
    3: "SnapshotHeader",
    4: "SnapshotFooter",
    5: "KRaftVersion",
    6: "KRaftVoters",
}
DELETED = "<DELETE>"

# Byte fields that hold an encoded message.
_NESTED: dict[str, type[Message]] = {
    "subscription": ConsumerProtocolSubscription,
    "assignment": ConsumerProtocolAssignment,
}


def decode_text(record: Record) -> Decoded:
    """Key and value as text."""
    return _text(record.key), _text(record.value)


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="replace")


def describe_control(record: Record) -> str:
    """Describe a control record."""
    key, value = record.key or b"", record.value or b""
    try:
        kind = decode(ControlRecordTypeSchema, 0, key, 2)[0].type
        if kind not in CONTROL_NAMES:
            return f"controlType: {OTHER_CONTROL_NAMES.get(kind, 'UNKNOWN')}({kind})"
        marker = decode(EndTxnMarker, 0, value, 2)[0]
    except MalformedMessage:
        return "controlType: UNREADABLE"
    return f"endTxnMarker: {CONTROL_NAMES[kind]} coordinatorEpoch: {marker.coordinator_epoch}"


def decode_offsets(record: Record) -> Decoded:
    """A record of __consumer_offsets as JSON."""
    return _decode_internal(record, _OFFSETS_RECORDS)


def decode_transactions(record: Record) -> Decoded:
    """A record of __transaction_state as JSON."""
    return _decode_internal(record, _TRANSACTION_RECORDS)


def _pairs(*modules: ModuleType) -> dict[int, tuple[type[RecordKey], type[Message]]]:
    """Key and value classes by record type, paired by their names."""
    return {
        key.record_type: (key, getattr(module, name.removesuffix("Key") + "Value"))
        for module in modules
        for name, key in vars(module).items()
        if isinstance(key, type) and issubclass(key, RecordKey) and key is not RecordKey
    }


_OFFSETS_RECORDS = _pairs(group_records, consumer_group_records)
_TRANSACTION_RECORDS = _pairs(transaction_records)


def _decode_internal(record: Record, known: dict[int, tuple[type[RecordKey], type[Message]]]) -> Decoded:
    if record.key is None:
        return decode_text(record)
    record_type = int.from_bytes(record.key[:2], "big", signed=True)
    if record_type not in known:
        return _json({"type": str(record_type), "data": "unknown"}), _text(record.value)
    key_class, value_class = known[record_type]
    key = _json({"type": str(record_type), "data": _fields_of(key_class, 0, record.key)})
    if record.value is None:
        return key, DELETED
    version = int.from_bytes(record.value[:2], "big", signed=True)
    return key, _json({"version": str(version), "data": _fields_of(value_class, version, record.value)})


def _fields_of(message: type[Message], version: int, content: bytes) -> Any:
    """Decode the fields after the version; "unknown" if the version is not known."""
    if version not in message.versions:
        return "unknown"
    try:
        return _as_json(decode(message, version, content, 2)[0], version)
    except MalformedMessage as fault:
        return f"unreadable: {fault.message}"


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def _as_json(struct: Struct, version: int) -> dict[str, Any]:
    """A message in the layout of Kafka's tools: the fields of this version, tagged ones only if set."""
    return {
        _camel_case(name): _value(name, field, getattr(struct, name), version)
        for name, field in type(struct).wire_fields.items()
        if version in field.versions and (field.tag is None or getattr(struct, name) != field.default)
    }


def _value(name: str, field: Field, value: Any, version: int) -> Any:
    if isinstance(value, Struct):
        return _as_json(value, version)
    if isinstance(value, list):
        uuids = isinstance(field.type, Array) and field.type.element is uuid
        return [_element(item, uuids, version) for item in value]
    if isinstance(value, bytes):
        if isinstance(field.type, Fixed):
            return uuid_to_text(value)
        return _nested(name, value)
    return value


def _element(item: Any, is_uuid: bool, version: int) -> Any:
    if isinstance(item, Struct):
        return _as_json(item, version)
    return uuid_to_text(item) if is_uuid else item


def _nested(name: str, content: bytes) -> Any:
    message = _NESTED.get(name)
    if message is None or not content:
        return base64.b64encode(content).decode()
    version = int.from_bytes(content[:2], "big", signed=True)
    return _fields_of(message, version, content)


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
