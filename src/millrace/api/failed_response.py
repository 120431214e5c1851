"""A failed response: it names the items of the request, with an error in every field that can hold one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from millrace.errors import Error
from millrace.wire.schema import Array, Fixed, Nested, String, Type

# Fields whose names differ between requests and their responses.
SAME_NAMES = {"index": "partition", "partition_index": "partition", "topic": "name", "user": "name"}
# Fields of Fetch for which clients expect these values beside an error. Null records would be a bad message.
FIXED_VALUES = {"high_watermark": -1, "records": b""}


def failed_response(request: Any, error: Error, message: str | None) -> Any:
    """The response in which every item of the request has failed with the error."""
    return _failed(request.response, request, error, message)


def _failed(struct: type[Any], asked: Any, error: Error, message: str | None) -> Any:
    answer = struct(**dict(_taken_over(struct, asked)))
    for name, field in struct.wire_fields.items():
        item = _item_struct(field.type)
        if _is_error_code(name):
            setattr(answer, name, error)
        elif name == "error_message":
            setattr(answer, name, message)
        elif name in FIXED_VALUES:
            setattr(answer, name, FIXED_VALUES[name])
        elif item is not None and _carries_error(item):
            setattr(answer, name, [_failed(item, one, error, message) for one in _asked_items(item, asked)])
    return answer


def _taken_over(struct: type[Any], asked: Any) -> Iterator[tuple[str, Any]]:
    """The identifying fields of a response, copied from the request."""
    if isinstance(asked, str | int):
        kind = String if isinstance(asked, str) else Fixed
        fitting = (name for name, field in struct.wire_fields.items() if _names_it(name, field, kind))
        for first in islice(fitting, 1):
            yield first, asked
        return
    own = {SAME_NAMES.get(name, name): name for name in struct.wire_fields}
    for name, field in type(asked).wire_fields.items():
        mine = own.get(SAME_NAMES.get(name, name))
        if mine is not None and field.type == struct.wire_fields[mine].type and _is_simple(field.type):
            yield mine, getattr(asked, name)


def _asked_items(item: type[Any], asked: Any) -> list[Any]:
    """The items of the request that belong to the response's list of `item`."""
    found: list[Any] = []
    for name, field in type(asked).wire_fields.items():
        values = getattr(asked, name)
        # Topics that a fetch session forgets are not asked for.
        if not isinstance(field.type, Array) or not values or name.startswith("forgotten"):
            continue
        if _answers(item, values[0]) or _names_nothing(item):
            found += values
    return found


def _names_nothing(item: type[Any]) -> bool:
    """Whether the items of a response are identified by their order alone."""
    return not any(
        _is_simple(field.type) and not _is_error_code(name) and name != "error_message"
        for name, field in item.wire_fields.items()
    )


def _answers(item: type[Any], asked: Any) -> bool:
    return any(True for _ in _taken_over(item, asked))


def _names_it(name: str, field: Any, kind: type[Type]) -> bool:
    return isinstance(field.type, kind) and not _is_error_code(name) and name != "error_message"


def _is_error_code(name: str) -> bool:
    return name == "error_code" or name.endswith("_error_code")


def _is_simple(of: Type) -> bool:
    return isinstance(of, Fixed | String)


def _item_struct(of: Type) -> type[Any] | None:
    """The struct that a field is a list of."""
    if isinstance(of, Array) and isinstance(of.element, Nested):
        return of.element.struct
    return None


def _carries_error(struct: type[Any]) -> bool:
    """Whether a struct has an error code, directly or in the items of a list."""
    items = (_item_struct(field.type) for field in struct.wire_fields.values())
    return any(map(_is_error_code, struct.wire_fields)) or any(
        item is not None and _carries_error(item) for item in items
    )
