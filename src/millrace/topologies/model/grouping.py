"""Groupings: which tasks of a bolt receive a tuple."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol

from millrace.topologies.model.errors import TopologyError


class Kind(StrEnum):
    SHUFFLE = "shuffle"
    FIELDS = "fields"
    ALL = "all"
    GLOBAL = "global"
    NONE = "none"
    DIRECT = "direct"
    LOCAL_OR_SHUFFLE = "local or shuffle"
    PARTIAL_KEY = "partial key"
    CUSTOM = "custom"


class CustomGrouping(Protocol):
    """A grouping written by the user. Every emitting task has a copy of its own."""

    def prepare(self, component: str, stream: str, tasks: Sequence[int]) -> None:
        """Called once, with the receiving tasks in ascending order."""

    def choose_tasks(self, task: int, values: Sequence[Any]) -> Sequence[int]:
        """The tasks that receive the values emitted by a task; several or none are allowed."""


@dataclass(frozen=True)
class Grouping:
    """The way a bolt's tasks share a stream. Use the constants, or `fields`, `partial_key` and `custom`."""

    kind: Kind
    by: tuple[str, ...] = ()
    """The fields of a fields or partial-key grouping."""
    chooser: CustomGrouping | None = None

    SHUFFLE: ClassVar[Grouping]
    ALL: ClassVar[Grouping]
    GLOBAL: ClassVar[Grouping]
    NONE: ClassVar[Grouping]
    DIRECT: ClassVar[Grouping]
    LOCAL_OR_SHUFFLE: ClassVar[Grouping]

    @classmethod
    def fields(cls, *names: str) -> Grouping:
        """Tuples with equal values of these fields go to the same task."""
        return cls(Kind.FIELDS, _names("fields", names))

    @classmethod
    def partial_key(cls, *names: str) -> Grouping:
        """A key has two tasks; the less loaded one receives a tuple. Merge the totals downstream."""
        return cls(Kind.PARTIAL_KEY, _names("partial_key", names))

    @classmethod
    def custom(cls, chooser: CustomGrouping) -> Grouping:
        """The user's object chooses the tasks."""
        missing = [name for name in ("prepare", "choose_tasks") if not callable(getattr(chooser, name, None))]
        if missing:
            raise TopologyError(f"a custom grouping needs a method {missing[0]}; {chooser!r} has none")
        return cls(Kind.CUSTOM, chooser=chooser)

    custom_object = custom
    """The name that streamparse has for it."""

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(self.by)})" if self.by else str(self.kind)


Grouping.SHUFFLE = Grouping(Kind.SHUFFLE)
Grouping.ALL = Grouping(Kind.ALL)
Grouping.GLOBAL = Grouping(Kind.GLOBAL)
Grouping.NONE = Grouping(Kind.NONE)
Grouping.DIRECT = Grouping(Kind.DIRECT)
Grouping.LOCAL_OR_SHUFFLE = Grouping(Kind.LOCAL_OR_SHUFFLE)


def _names(method: str, names: tuple[Any, ...]) -> tuple[str, ...]:
    # A list is taken too: streamparse users write either.
    flat = tuple(names[0]) if len(names) == 1 and isinstance(names[0], (list, tuple)) else names
    if not flat or not all(isinstance(name, str) for name in flat):
        raise TopologyError(f"Grouping.{method} takes the names of fields, such as Grouping.{method}('word')")
    return flat
