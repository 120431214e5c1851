"""Exact counts and times of one task, for the figures that Storm's UI shows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

Source = tuple[str, str]
"""A component and a stream."""


@dataclass(slots=True)
class TaskStats:
    """Owned by the worker's loop; not thread-safe."""

    emitted: Counter[str] = field(default_factory=Counter)
    """Emits, by stream."""
    transferred: Counter[str] = field(default_factory=Counter)
    """Tuples delivered to receiving tasks, by stream."""
    executed: Counter[Source] = field(default_factory=Counter)
    acked: Counter[Source] = field(default_factory=Counter)
    failed: Counter[Source] = field(default_factory=Counter)
    execute_seconds: dict[Source, float] = field(default_factory=dict)
    complete_seconds: float = 0.0
    custom: Counter[str] = field(default_factory=Counter)
    errors: list[tuple[float, str]] = field(default_factory=list)
    """When and what, the newest last."""
