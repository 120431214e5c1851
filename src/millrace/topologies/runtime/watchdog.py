"""The watchdog: names a component that hangs, and ends its worker, which is then started again."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

from millrace.topologies.model.tuples import Tuple
from millrace.topologies.runtime.engine import Engine
from millrace.topologies.runtime.output import TRANSACTION_SECONDS
from millrace.topologies.runtime.tasks import Task

logger = logging.getLogger(__name__)

EXIT_CODE = 75
TUPLE_CHARACTERS = 500
# The client's own time-out comes first, if the client keeps it.
CALL_SECONDS = TRANSACTION_SECONDS + 5


class Watchdog:
    """Looks at a worker's loop from a thread of its own: a loop that hangs cannot look at itself."""

    def __init__(
        self,
        engine: Engine,
        seconds: float,
        report: Callable[[str, Task], None],
        called_at: Callable[[], float | None] = lambda: None,
        end: Callable[[], None] = lambda: os._exit(EXIT_CODE),
    ) -> None:
        """`report` gets the error and the task; `end` ends the process, since a thread cannot be ended.

        `called_at` says since when the worker waits for the end of a transaction, None if it does not.
        """
        self._engine = engine
        self._seconds = seconds
        self._report = report
        self._called_at = called_at
        self._end = end
        self._stopped = threading.Event()
        self._last: object = None
        self._since = time.monotonic()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(min(self._seconds / 10, 1.0)):
            called_at = self._called_at()
            if called_at is not None and time.monotonic() - called_at > CALL_SECONDS:
                logger.critical(
                    "the client has not ended a transaction for more than %g s; the worker is restarted",
                    CALL_SECONDS,
                )
                self._end()
                return
            found = self._hanging()
            if found is None or self._stopped.is_set():
                continue
            task, tup = found
            error = (
                f"{task.context.component}, task {task.context.task}, hangs for more than {self._seconds:g} s"
                + (f" on {tup!r}"[:TUPLE_CHARACTERS] if tup is not None else "")
                + "; its worker is restarted. Calls that block belong into executors=N or an async process; "
                "topology.hang.timeout.secs allows for more time"
            )
            logger.critical(error)
            self._report(error, task)
            self._end()
            return

    def _hanging(self) -> tuple[Task, Tuple | None] | None:
        """The task that has been at the same tuple for too long."""
        now = time.monotonic()
        executing = self._engine.executing
        if executing is None or executing is not self._last:
            self._last, self._since = executing, now
        elif now - self._since > self._seconds:
            return executing
        for call in list(self._engine.calls.values()):
            if call.is_running and time.perf_counter() - call.began > self._seconds:
                return call.task, call.tup
        return None
