"""Requests with about as many elements as the broker takes, made from the declarations of the messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millrace.wire.decoding import MAX_REQUEST_ELEMENTS
from millrace.wire.schema import Array, Bytes, Fixed, Nested, RecordsType, Request, String, Struct, Type

ELEMENTS = MAX_REQUEST_ELEMENTS - 1000
NAME = "name-0"
"""The name of everything that is not numbered."""

Path = tuple[str, ...]


def array_paths(struct: type[Struct], version: int) -> Iterator[Path]:
    """Every array of a struct, by the names of the fields that lead to it."""
    for name, field in struct.wire_fields.items():
        if version in field.versions and isinstance(field.type, Array):
            yield (name,)
            if isinstance(field.type.element, Nested):
                for path in array_paths(field.type.element.struct, version):
                    yield (name, *path)


def long_request(request: type[Request], version: int, path: Path, *, distinct: bool) -> Any:
    """A request with one long array, whose elements are numbered or all alike."""
    made: Any = _struct(request, version, 0)
    owner, element = made, _element(made, path[0])
    for name in path[1:]:
        (owner,) = getattr(owner, path[path.index(name) - 1])
        element = _element(owner, name)
    count = ELEMENTS // _weight(element, version)
    setattr(owner, path[-1], [_value(element, version, n if distinct else 0) for n in range(count)])
    return made


def _element(owner: Any, name: str) -> Any:
    return type(owner).wire_fields[name].type.element


def _weight(of: Type, version: int) -> int:
    """The elements that one of this type brings along, itself included."""
    if not isinstance(of, Nested):
        return 1
    inner = (field.type for field in of.struct.wire_fields.values() if version in field.versions)
    return 1 + sum(_weight(field.element, version) for field in inner if isinstance(field, Array))


def _struct(struct: type[Struct], version: int, number: int) -> Any:
    """A struct whose names and partitions are numbered, with one element in each array."""
    made = struct()
    for name, field in struct.wire_fields.items():
        if version not in field.versions:
            continue
        if isinstance(field.type, Array):
            setattr(made, name, [_value(field.type.element, version, 0)])
        elif _is_identity(name, field.type):
            setattr(made, name, _value(field.type, version, number))
    return made


def _is_identity(name: str, of: Type) -> bool:
    return (isinstance(of, String) and "instance" not in name) or name in (
        "partition",
        "partition_index",
        "index",
        "topic_id",
    )


def _value(of: Type, version: int, number: int) -> Any:
    match of:
        case Fixed(format="?" | "d"):
            return of.zero
        case Fixed(format="16s"):
            return number.to_bytes(16, "big")
        case Fixed():
            return number % (1 << 8 * of.size - 1)
        case String():
            return f"name-{number}"
        case Bytes() | RecordsType():
            return b""
        case Nested():
            return _struct(of.struct, version, number)
    raise TypeError(of)
