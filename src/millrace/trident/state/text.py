"""Keys and values as text: JSON, with tags for the types that JSON lacks.

A count in a database is then readable with the tools of that database.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from millrace.trident.errors import StateError

_BYTES, _DECIMAL, _DATETIME, _DATE, _TIME, _SECONDS, _PAIRS = (
    "$bytes",
    "$decimal",
    "$datetime",
    "$date",
    "$time",
    "$seconds",
    "$pairs",
)

_DECODERS: Mapping[str, Callable[[Any], Any]] = {
    _BYTES: base64.b64decode,
    _DECIMAL: Decimal,
    _DATETIME: datetime.fromisoformat,
    _DATE: date.fromisoformat,
    _TIME: time.fromisoformat,
    _SECONDS: lambda seconds: timedelta(seconds=seconds),
    _PAIRS: dict,
}


def encode(value: Any) -> str:
    """A value as text; raises StateError for a type that has no form as text."""
    return _ENCODER.encode(_with_pairs(value))


def encode_key(values: Sequence[Any]) -> str:
    """The key of a row of a state: the values of the fields that it is grouped by."""
    return _KEY_ENCODER.encode(_with_pairs(list(values)))


def decode(text: str) -> Any:
    """The value of a text that `encode` or `encode_key` has made."""
    return _DECODER.decode(text)


def _with_pairs(value: Any) -> Any:
    """Write dictionaries that JSON would change, or that look like a tag, as pairs."""
    if isinstance(value, dict):
        plain = {key: _with_pairs(item) for key, item in value.items()}
        if all(isinstance(key, str) and not key.startswith("$") for key in plain):
            return plain
        return {_PAIRS: [[_with_pairs(key), item] for key, item in plain.items()]}
    if isinstance(value, (list, tuple)):
        return [_with_pairs(item) for item in value]
    return value


def _tagged(value: Any) -> Any:
    match value:
        case bytes() | bytearray() | memoryview():
            return {_BYTES: base64.b64encode(bytes(value)).decode()}
        case Decimal():
            return {_DECIMAL: str(value)}
        case datetime():
            return {_DATETIME: value.isoformat()}
        case date():
            return {_DATE: value.isoformat()}
        case time():
            return {_TIME: value.isoformat()}
        case timedelta():
            return {_SECONDS: value.total_seconds()}
    raise StateError(
        f"a value of type {type(value).__name__} cannot be kept in a state;"
        " use text, numbers, bytes, times, lists and dictionaries"
    )


def _untagged(found: dict[str, Any]) -> Any:
    if len(found) == 1:
        [(tag, content)] = found.items()
        if tag in _DECODERS:
            return _DECODERS[tag](content)
    return found


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_tagged)
_KEY_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_tagged, sort_keys=True)
# json.loads would make a decoder for every text.
_DECODER = json.JSONDecoder(object_hook=_untagged)
