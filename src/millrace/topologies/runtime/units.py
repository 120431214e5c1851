"""Inputs of a worker: a record of the log, and every tuple inside the worker that descends from it."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any


class Unit:
    """One input. Done when all tuples that descend from it in this worker are acked or failed.

    Owned by the worker's loop; not thread-safe.
    """

    __slots__ = ("_on_done", "began", "failed_by", "failure", "pending")

    def __init__(self, on_done: Callable[[Any], None]) -> None:
        """`on_done` gets the unit."""
        self.pending = 0
        self.failure: str | None = None
        """Why the input must be delivered again, or given up."""
        self.failed_by = ""
        """The component that failed it."""
        self._on_done = on_done
        self.began = perf_counter()

    def release(self) -> None:
        """One of the tuples is done."""
        self.pending -= 1
        if not self.pending:
            self._on_done(self)

    def fail(self, component: str, reason: str) -> None:
        """A component has failed one of the tuples; the others run to their end first."""
        if self.failure is None:
            self.failure = reason
            self.failed_by = component
        self.release()
