"""The status of runs, one line per query: live on a terminal, every ten seconds elsewhere."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from millrace.pipelines.errors import PipelineError
from millrace.pipelines.kafka import offsets
from millrace.pipelines.kafka.client import admin

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console
    from rich.table import Table

    from millrace.pipelines.run.lifecycle import Run
    from millrace.pipelines.run.query import Query

LIVE_SECONDS = 0.5
LINE_SECONDS = 10.0
LAG_SECONDS = 1.0
RATE_SECONDS = 10.0


@dataclass
class Meter:
    """Rates and state size of a query, from its last batches."""

    now: Callable[[], float] = time.monotonic
    batches: deque[tuple[float, int, int]] = field(default_factory=deque)
    """The end of each batch, and the records it read and wrote; -1 if writes are not counted."""
    total: int = 0
    since: float | None = None
    batch_ms: int = 0
    state_rows: int | None = None

    def record(self, progress: Any, total: int | None = None) -> None:
        """Record Spark's report on a batch. `total` is the number of rows written so far, if counted."""
        read, written = int(progress.numInputRows), int(progress.sink.numOutputRows)
        if total is not None:
            # A restarted query counts from zero.
            written, self.total = total - (self.total if total >= self.total else 0), total
        self.since = self.since or self.now()
        self.batches.append((self.now(), read, written))
        if read:
            self.batch_ms = int(progress.durationMs.get("triggerExecution", progress.batchDuration))
        if progress.stateOperators:
            self.state_rows = sum(int(operator.numRowsTotal) for operator in progress.stateOperators)

    def rates(self) -> tuple[float, float | None]:
        """Records read and written per second, over the last ten; None if writes are not counted."""
        now = self.now()
        while self.batches and self.batches[0][0] < now - RATE_SECONDS:
            self.batches.popleft()
        if self.since is None:
            return 0.0, None
        seconds = max(1.0, min(RATE_SECONDS, now - self.since))
        written = [out for _, _, out in self.batches]
        counted = None if written and min(written) < 0 else sum(written) / seconds
        return sum(read for _, read, _ in self.batches) / seconds, counted


class Status(AbstractContextManager["Status"]):
    """Shows the status of runs during its block."""

    def __init__(self, runs: Sequence[Run], console: Console) -> None:
        self._runs = runs
        self._console = console
        self._meters: dict[str, Meter] = {}
        self._lags: dict[str, int] = {}
        self._unavailable: set[str] = set()
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._follow_lag, name="millrace-lag", daemon=True),
            threading.Thread(target=self._show, name="millrace-status", daemon=True),
        ]
        for run in runs:
            run.on_progress = self._record

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._threads[-1].join(5)

    def lines(self) -> list[str]:
        """The status as plain text, one line per query."""
        return [
            f"{query.name}: {', '.join(text for _, text in self._cells(run, query) if text)}"
            for run in self._runs
            for query in run.planned
        ]

    def _record(self, progress: Any, total: int | None) -> None:
        self._meters.setdefault(progress.name, Meter()).record(progress, total)

    def _cells(self, run: Run, query: Query) -> list[tuple[str, str]]:
        """The parts of a status line: a label and a text each."""
        if run.waiting_for_broker or run.bootstrap in self._unavailable:
            return [("state", f"waiting for the broker at {run.bootstrap}")]
        if (meter := self._meters.get(query.name)) is None:
            return [("mode", query.execution.mode), ("state", "starting")]
        read, written = meter.rates()
        lag = self._lags.get(query.name)
        return [
            ("mode", query.execution.mode),
            ("in", f"{number(read)}/s in"),
            ("out", "" if written is None else f"{number(written)}/s out"),
            ("lag", "" if lag is None else f"lag {lag:,}"),
            ("batch", "" if query.execution.mode == "real-time" else f"batch {meter.batch_ms:,} ms"),
            ("rows", "" if meter.state_rows is None else f"state {meter.state_rows:,} rows"),
        ]

    # Lag

    def _follow_lag(self) -> None:
        clients: dict[str, Any] = {}
        while not self._ended.wait(LAG_SECONDS):
            for run in self._runs:
                client = clients.setdefault(run.bootstrap, admin(run.bootstrap))
                self._update_lag(run, client)

    def _update_lag(self, run: Run, client: Any) -> None:
        topics = {topic for query in run.planned for topic in query.reached}
        if not topics:
            return
        try:
            ends = offsets.end_offsets(run.bootstrap, topics, connection=client)
        except PipelineError:
            self._unavailable.add(run.bootstrap)
            return
        self._unavailable.discard(run.bootstrap)
        for query in run.planned:
            of_query = {topic: ends[topic] for topic in query.reached if topic in ends}
            self._lags[query.name] = offsets.behind(query.reached, of_query)

    # Showing

    def _show(self) -> None:
        if self._console.is_terminal:
            self._show_live()
        else:
            while not self._ended.wait(LINE_SECONDS):
                for line in self.lines():
                    self._console.print(line, highlight=False, soft_wrap=True)

    def _show_live(self) -> None:
        from rich.live import Live

        with Live(self._table(), console=self._console, auto_refresh=False, transient=True) as live:
            while not self._ended.wait(LIVE_SECONDS):
                live.update(self._table(), refresh=True)

    def _table(self) -> Table:
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        for run in self._runs:
            for query in run.planned:
                table.add_row(f"[bold cyan]{query.name}[/]", *(text for _, text in self._cells(run, query)))
        return table


def number(value: float) -> str:
    """A rate in words: 12,345 or 3.2."""
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"
