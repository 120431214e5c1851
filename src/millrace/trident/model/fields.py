"""Fields of streams, and the types of those that Python functions make.

An output is declared by its name, `"word"`, or with its type in Spark's syntax, `"count bigint"`. Without a
type, the return annotation of the function gives it.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Generator, Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from millrace.trident.errors import TridentError
from millrace.trident.operations.aggregators import Aggregator, CombinerAggregator
from millrace.trident.operations.functions import Function, label_of
from millrace.trident.operations.queries import QueryFunction, StateUpdater

Names: TypeAlias = str | Sequence[str]

_TYPES: dict[Any, str] = {
    str: "string",
    int: "bigint",
    float: "double",
    bool: "boolean",
    bytes: "binary",
    datetime: "timestamp",
    date: "date",
    timedelta: "interval day to second",
    Decimal: "decimal(38,18)",
}
_ITERABLES = (Iterator, Iterable, Generator, list, Sequence)
_DECLARED = re.compile(r"\s*([A-Za-z_]\w*)(?:\s*:\s*|\s+)?(.*)", re.DOTALL)


class Output(NamedTuple):
    """A field that an operation makes. Without a type, the planner derives it from the inputs."""

    name: str
    type: str | None = None


def names_of(fields: Names) -> tuple[str, ...]:
    """Field names, given as one name, as several in a list, or as `"a, b"`."""
    if isinstance(fields, str):
        fields = [part.strip() for part in fields.split(",")]
    names = tuple(fields)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise TridentError(f"{fields!r} are not names of fields; write 'word' or ['word', 'count']")
    return names


def outputs_of(fields: Names) -> tuple[Output, ...]:
    """Declared outputs: one, or several in a list."""
    declared = [fields] if isinstance(fields, str) else list(fields)
    outputs = []
    for text in declared:
        found = _DECLARED.fullmatch(text)
        if found is None:
            raise TridentError(f"{text!r} is not a field; write 'word' or 'count bigint'")
        outputs.append(Output(found[1], found[2].strip() or None))
    if len({output.name for output in outputs}) < len(outputs):
        raise TridentError(
            f"{', '.join(output.name for output in outputs)}: a name appears twice; rename one"
        )
    return tuple(outputs)


def typed(outputs: Sequence[Output], operation: Any, *, is_flat: bool = False) -> tuple[Output, ...]:
    """Outputs with the types that the operation gives them, where their author has given none."""
    if all(output.type is not None for output in outputs):
        return tuple(outputs)
    given = _annotated(operation, len(outputs), is_flat)
    return tuple(
        output if output.type is not None else Output(output.name, kind)
        for output, kind in zip(outputs, given, strict=True)
    )


def require_types(outputs: Sequence[Output], operation: Any) -> None:
    """Refuse outputs of Python code whose type is unknown: Spark's columns have types."""
    for output in outputs:
        if output.type is None:
            raise TridentError(
                f"the type of the field {output.name!r} that {label_of(operation)} makes is unknown;"
                f" write '{output.name} string', or annotate what the function returns"
            )


def type_name(annotation: Any) -> str | None:
    """The type of Spark for a Python annotation; None if there is none."""
    if annotation in _TYPES:
        return _TYPES[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        present = [argument for argument in arguments if argument is not type(None)]
        return type_name(present[0]) if len(present) == 1 else None
    if origin in (list, Sequence) and len(arguments) == 1 and (inner := type_name(arguments[0])):
        return f"array<{inner}>"
    if origin is dict and (key := type_name(arguments[0])) and (value := type_name(arguments[1])):
        return f"map<{key},{value}>"
    return None


def _annotated(operation: Any, count: int, is_flat: bool) -> list[str | None]:
    if count == 1 and (known := getattr(operation, "output_type", None)):
        return [known]
    if isinstance(operation, CombinerAggregator):
        method: Any = operation.combine
    elif isinstance(operation, (Function, Aggregator, QueryFunction, StateUpdater)):
        # They emit, and return nothing that has a type.
        return [None] * count
    else:
        method = getattr(operation, "reduce", operation)
    annotation = _return_annotation(method)
    if is_flat or inspect.isgeneratorfunction(method):
        arguments = typing.get_args(annotation)
        annotation = arguments[0] if typing.get_origin(annotation) in _ITERABLES and arguments else None
    if count == 1:
        return [type_name(annotation)]
    arguments = typing.get_args(annotation) if typing.get_origin(annotation) is tuple else ()
    return [type_name(argument) for argument in arguments] if len(arguments) == count else [None] * count


def _return_annotation(function: Any) -> Any:
    try:
        return typing.get_type_hints(function).get("return")
    except (TypeError, NameError):
        return None
