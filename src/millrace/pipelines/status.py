"""How a run is doing, in one line for each query: live on a terminal, every ten seconds elsewhere."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from millrace.pipelines import offsets
from millrace.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console
    from rich.table import Table

    from millrace.pipelines.queries import Query
    from millrace.pipelines.running import Run

LIVE_SECONDS = 0.5
LINE_SECONDS = 10.0
LAG_SECONDS = 1.0
RATE_SECONDS = 10.0


@dataclass
class Meter:
    """What the last batches of a query amount to."""

    now: Callable[[], float] = time.monotonic
    batches: deque[tuple[float, int, int]] = field(default_factory=deque)
    """When a batch was through, and how many records it has read and written; -1 if nobody counts."""
    total: int = 0
    since: float | None = None
    batch_ms: int = 0
    state_rows: int | None = None

    def note(self, progress: Any, total: int | None = None) -> None:
        """Take note of Spark's report on a batch; `total` is what was written so far, if the sink counts."""
        read, written = int(progress.numInputRows), int(progress.sink.numOutputRows)
        if total is not None:
            # A query that was started again counts from zero.
            written, self.total = total - (self.total if total >= self.total else 0), total
        self.since = self.since or self.now()
        self.batches.append((self.now(), read, written))
        if read:
            self.batch_ms = int(progress.durationMs.get("triggerExecution", progress.batchDuration))
        if progress.stateOperators:
            self.state_rows = sum(int(one.numRowsTotal) for one in progress.stateOperators)

    def rates(self) -> tuple[float, float | None]:
        """Records read and written in a second, over the last ten; none written if nobody counts them."""
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
    """Shows how runs are doing while its block lasts."""

    def __init__(self, runs: Sequence[Run], console: Console) -> None:
        self._runs = runs
        self._console = console
        self._meters: dict[str, Meter] = {}
        self._lags: dict[str, int] = {}
        self._away: set[str] = set()
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._follow_lag, name="millrace-lag", daemon=True),
            threading.Thread(target=self._show, name="millrace-status", daemon=True),
        ]
        for run in runs:
            run.on_progress = self._note

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
        """The status as plain text, a line for each query."""
        return [
            f"{query.name}: {', '.join(text for _, text in self._cells(run, query) if text)}"
            for run in self._runs
            for query in run.planned
        ]

    def _note(self, progress: Any, total: int | None) -> None:
        self._meters.setdefault(progress.name, Meter()).note(progress, total)

    def _cells(self, run: Run, query: Query) -> list[tuple[str, str]]:
        """What there is to say about a query: what it is about, and the words."""
        if run.waiting_for_broker or run.bootstrap in self._away:
            return [("state", f"waiting for the broker at {run.bootstrap}")]
        if (meter := self._meters.get(query.name)) is None:
            return [("mode", query.choice.mode), ("state", "starting")]
        read, written = meter.rates()
        lag = self._lags.get(query.name)
        return [
            ("mode", query.choice.mode),
            ("in", f"{number(read)}/s in"),
            ("out", "" if written is None else f"{number(written)}/s out"),
            ("lag", "" if lag is None else f"lag {lag:,}"),
            ("batch", "" if query.choice.mode == "real-time" else f"batch {meter.batch_ms:,} ms"),
            ("rows", "" if meter.state_rows is None else f"state {meter.state_rows:,} rows"),
        ]

    # Lag

    def _follow_lag(self) -> None:
        clients: dict[str, Any] = {}
        while not self._ended.wait(LAG_SECONDS):
            for run in self._runs:
                client = clients.setdefault(run.bootstrap, offsets.admin(run.bootstrap))
                self._look_up_lag(run, client)

    def _look_up_lag(self, run: Run, client: Any) -> None:
        topics = {topic for query in run.planned for topic in query.reached}
        if not topics:
            return
        try:
            ends = offsets.end_offsets(run.bootstrap, topics, client=client)
        except PipelineError:
            self._away.add(run.bootstrap)
            return
        self._away.discard(run.bootstrap)
        for query in run.planned:
            mine = {topic: ends[topic] for topic in query.reached if topic in ends}
            self._lags[query.name] = offsets.behind(query.reached, mine)

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
    """A rate as people read it: 12,345 or 3.2."""
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"
