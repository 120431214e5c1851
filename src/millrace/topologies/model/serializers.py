"""Serializers of the user's own classes, for values that go to another worker or into state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from millrace.topologies.model.errors import TopologyError


class Serializer(NamedTuple):
    """Turns values of a class into plain ones (text, numbers, lists, dictionaries), and back."""

    name: str
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


_by_class: dict[type, Serializer] = {}
_by_name: dict[str, Serializer] = {}


def register_serializer(cls: type, encode: Callable[[Any], Any], decode: Callable[[Any], Any]) -> None:
    """Let values of a class be emitted and kept in state. Call it in the topology's file.

    >>> register_serializer(Point, encode=lambda point: [point.x, point.y], decode=lambda pair: Point(*pair))
    """
    name = cls.__qualname__
    if not callable(encode) or not callable(decode):
        raise TopologyError(f"the serializer of {name} needs two functions, encode and decode")
    _by_class[cls] = _by_name[name] = Serializer(name, encode, decode)


def has_serializers() -> bool:
    return bool(_by_class)


def serializer_of(value: Any) -> Serializer | None:
    return _by_class.get(type(value))


def serializer_named(name: str) -> Serializer | None:
    return _by_name.get(name)
