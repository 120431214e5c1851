"""Exact counts and times of one task, for the figures that Storm's UI shows."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import NamedTuple

Source = tuple[str, str]
"""A component and a stream."""

# A task that fails at every tuple must not fill the worker's memory.
KEPT_ERRORS = 100


class TaskError(NamedTuple):
    """An error of the user's code."""

    at: float
    """On the engine's clock, in seconds."""
    text: str


@dataclass(slots=True)
class InputStats:
    """Tuples of one stream that a bolt received."""

    executed: int = 0
    acked: int = 0
    failed: int = 0
    execute_seconds: float = 0.0
    """Time inside `process`."""
    process_seconds: float = 0.0
    """Time from the receipt of each acked tuple to its ack."""


@dataclass(slots=True)
class TaskStats:
    """Totals since the worker started. Owned by the worker's loop; not thread-safe."""

    emitted: Counter[str] = field(default_factory=Counter)
    """Emits, by stream."""
    transferred: Counter[str] = field(default_factory=Counter)
    """Tuples delivered to receiving tasks, by stream."""
    inputs: dict[Source, InputStats] = field(default_factory=dict)
    acked: int = 0
    """Tuple trees of a spout that are done; records, of a log spout."""
    failed: int = 0
    complete_seconds: float = 0.0
    """Time from the emit of each acked tree to its end."""
    custom: Counter[str] = field(default_factory=Counter)
    errors: deque[TaskError] = field(default_factory=lambda: deque(maxlen=KEPT_ERRORS))
    """The newest last."""
    error_count: int = 0

    def of(self, source: Source) -> InputStats:
        found = self.inputs.get(source)
        if found is None:
            found = self.inputs[source] = InputStats()
        return found
