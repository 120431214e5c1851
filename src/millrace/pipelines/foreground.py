"""Runs pipelines until they end, or until whoever sits at the keyboard has had enough."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

from millrace.pipelines.errors import PipelineError
from millrace.pipelines.status import Status

if TYPE_CHECKING:
    from rich.console import Console

    from millrace.pipelines.running import Run

LOOK_SECONDS = 0.1
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """How often the user has asked to stop."""

    def __init__(self) -> None:
        self.count = 0

    def handle(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Count SIGINT and SIGTERM while the block lasts, instead of dying of them."""
    found = Interrupts()
    # Spark's own handler would cancel the batch that is to be completed.
    before = {number: signal.signal(number, found.handle) for number in SIGNALS}
    try:
        yield found
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def follow(runs: Sequence[Run], console: Console, *, started: bool = False) -> None:
    """Start runs and show how they are doing; Ctrl-C stops them after their batches, a second one at once.

    `started` says that they run already.
    """
    with interrupts() as asked, Status(runs, console):
        threads = [threading.Thread(target=_start, args=(run,), daemon=True) for run in runs if not started]
        for thread in threads:
            thread.start()
        told: set[str] = set()
        stopping = 0
        try:
            while any(not run.ended for run in runs):
                for run in runs:
                    run.wait(LOOK_SECONDS / len(runs))
                    for note in [note for note in run.notes if note not in told]:
                        told.add(note)
                        console.print(f"note: {note}", highlight=False, soft_wrap=True)
                if asked.count > stopping:
                    stopping = asked.count
                    if stopping == 1:
                        console.print(
                            "stopping after the current batch; Ctrl-C again stops at once", highlight=False
                        )
                    _stop(runs, now=stopping > 1)
        except PipelineError:
            _stop(runs, now=False)
            for run in runs:
                run.join()
            raise
    for run in runs:
        run.wait()


def _start(run: Run) -> None:
    # What is wrong, `wait` raises.
    with suppress(PipelineError):
        run.start()


def _stop(runs: Sequence[Run], *, now: bool) -> None:
    for run in runs:
        threading.Thread(target=run.stop, kwargs={"now": now}, daemon=True).start()
