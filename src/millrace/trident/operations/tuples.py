"""Tuples of Trident: values with names."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from millrace.trident.errors import TridentError


class TridentTuple:
    """The values of some fields, by name or by position."""

    __slots__ = ("fields", "values")

    def __init__(self, fields: Sequence[str], values: Sequence[Any]) -> None:
        self.fields = fields
        self.values = values

    def __getitem__(self, field: str | int) -> Any:
        if isinstance(field, int):
            return self.values[field]
        try:
            return self.values[self.fields.index(field)]
        except ValueError:
            raise TridentError(
                f"the tuple has no field {field!r}; its fields are {', '.join(self.fields) or 'none'}"
            ) from None

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TridentTuple) and (list(self.fields), list(self.values)) == (
            list(other.fields),
            list(other.values),
        )

    def __hash__(self) -> int:
        return hash(tuple(self.values))

    def __repr__(self) -> str:
        return f"({', '.join(f'{n}={v!r}' for n, v in zip(self.fields, self.values, strict=True))})"


class Collector:
    """Collects the tuples that an operation emits."""

    __slots__ = ("_outputs", "emitted")

    def __init__(self, outputs: Sequence[str]) -> None:
        self._outputs = outputs
        self.emitted: list[Sequence[Any]] = []

    def emit(self, values: Sequence[Any]) -> None:
        """Emit one value for each output field."""
        if isinstance(values, str) or len(values) != len(self._outputs):
            raise TridentError(
                f"emit({values!r}) does not fit the output fields {', '.join(self._outputs)};"
                " emit a list with one value for each"
            )
        self.emitted.append(values)


def hashable(value: Any) -> Any:
    """A value that equals another one exactly if Spark would put both in one group."""
    if isinstance(value, (list, tuple)):
        return tuple(map(hashable, value))
    if isinstance(value, dict):
        return ("dict", *sorted((key, hashable(item)) for key, item in value.items()))
    if isinstance(value, float) and math.isnan(value):
        return "nan", None
    return value
