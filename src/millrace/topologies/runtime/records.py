"""Records of the log as tuples, and tuples as records."""

from __future__ import annotations

import json
from typing import Any

from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.tuples import Tuple


def record_values(
    format: str,
    topic: str,
    partition: int,
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
) -> list[Any]:
    """The values that a log spout emits for a record: topic, partition, offset, timestamp, key, value.

    Raises ValueError if the value is not what the format says.
    """
    if format == "bytes":
        return [topic, partition, offset, timestamp, key, value]
    text_key = None if key is None else key.decode("utf-8", "replace")
    if value is None:
        return [topic, partition, offset, timestamp, text_key, None]
    content: Any = value.decode("utf-8", "replace") if format == "text" else json.loads(value)
    return [topic, partition, offset, timestamp, text_key, content]


def encode_field(value: Any) -> bytes | None:
    """A field as it is written to the log: text as UTF-8, bytes as they are, anything else as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    return _json(value)


def encode_tuple(tup: Tuple) -> bytes:
    """All fields of a tuple as a JSON object."""
    return _json(tup.as_dict())


def _json(value: Any) -> bytes:
    try:
        return _encoder.encode(value).encode()
    except (TypeError, ValueError) as error:
        raise TopologyError(f"{value!r} cannot be written as JSON: {error}") from error


def _as_text(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "replace")
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"a value of type {type(value).__name__}")


_encoder = json.JSONEncoder(separators=(",", ":"), default=_as_text)
