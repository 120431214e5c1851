"""Tuples: named values on their way from one component to another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from millrace.topologies.model.errors import TopologyError

SYSTEM_COMPONENT = "__system"
TICK_STREAM = "__tick"
SYSTEM_TASK = -1


class Tuple:
    """The values of one tuple, by name or by position, and the component, stream and task it comes from.

    A tuple belongs to the task that receives it. Other receivers share its values: do not change them.
    """

    __slots__ = (
        "_positions",
        "children",
        "component",
        "done",
        "edges",
        "received",
        "stream",
        "task",
        "units",
        "values",
    )

    def __init__(
        self,
        values: Sequence[Any],
        positions: Mapping[str, int],
        component: str,
        stream: str,
        task: int,
        edges: dict[int, int] | None = None,
        units: tuple[Any, ...] = (),
    ) -> None:
        self.values = values
        self._positions = positions
        self.component = component
        self.stream = stream
        self.task = task
        self.edges = edges
        """By the id of each spout tuple that this one descends from: the id of this edge of its tree."""
        self.children: dict[int, int] | None = None
        """By spout tuple: the XOR of the edges to the tuples that are anchored to this one."""
        self.received = 0.0
        """When the tuple came to its task, in seconds of the worker's performance counter."""
        self.done = False
        """Whether the tuple has been acked or failed."""
        self.units = units
        """The inputs of the worker that this tuple descends from: they are done when it is."""

    @property
    def fields(self) -> list[str]:
        """The names of the values, in their order."""
        return list(self._positions)

    @property
    def is_tick(self) -> bool:
        return self.stream == TICK_STREAM and self.component == SYSTEM_COMPONENT

    def __getitem__(self, field: str | int) -> Any:
        if type(field) is int:
            return self.values[field]
        try:
            return self.values[self._positions[field]]  # type: ignore[index]  # an int was answered above
        except KeyError:
            raise TopologyError(
                f"a tuple of {self.component}, stream {self.stream}, has no field {field!r}; "
                f"its fields are {', '.join(self._positions) or 'none'}"
            ) from None

    def get(self, field: str, default: Any = None) -> Any:
        """The value of a field, or a default if the tuple has no such field."""
        position = self._positions.get(field)
        return default if position is None else self.values[position]

    def as_dict(self) -> dict[str, Any]:
        return dict(zip(self._positions, self.values, strict=True))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        named = ", ".join(f"{name}={value!r}" for name, value in self.as_dict().items())
        return f"Tuple({self.component}/{self.stream}: {named})"
