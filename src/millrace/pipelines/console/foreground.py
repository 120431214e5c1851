"""Runs pipelines in the foreground until they end or are interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

from millrace.pipelines.console.status import Status
from millrace.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from rich.console import Console

    from millrace.pipelines.run.lifecycle import Run

POLL_SECONDS = 0.1
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Counts the requests to stop."""

    def __init__(self) -> None:
        self.count = 0

    def handle(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Count SIGINT and SIGTERM during the block instead of ending the process."""
    received = Interrupts()
    # Spark's own handler would cancel the batch that has to complete.
    before = {number: signal.signal(number, received.handle) for number in SIGNALS}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def follow(runs: Sequence[Run], console: Console, *, started: bool = False) -> None:
    """Start runs and show their status. Ctrl-C stops them after their batches, a second Ctrl-C at once.

    With `started`, the runs are running already.
    """
    with interrupts() as received, Status(runs, console):
        if not started:
            for run in runs:
                threading.Thread(target=_start, args=(run,), daemon=True).start()
        shown: set[str] = set()
        handled = 0
        try:
            while any(not run.ended for run in runs):
                for run in runs:
                    run.wait(POLL_SECONDS / len(runs))
                    for note in [note for note in run.notes if note not in shown]:
                        shown.add(note)
                        console.print(f"note: {note}", highlight=False, soft_wrap=True)
                if received.count > handled:
                    handled = received.count
                    if handled == 1:
                        console.print(
                            "stopping after the current batch; press Ctrl-C again to stop at once",
                            highlight=False,
                            soft_wrap=True,
                        )
                    _stop(runs, now=handled > 1)
        except PipelineError:
            _stop(runs, now=False)
            for run in runs:
                run.join()
            raise
    for run in runs:
        run.wait()


def _start(run: Run) -> None:
    # `Run.wait` raises the same error.
    with suppress(PipelineError):
        run.start()


def _stop(runs: Sequence[Run], *, now: bool) -> None:
    for run in runs:
        threading.Thread(target=run.stop, kwargs={"now": now}, daemon=True).start()
