"""The figures of the demo, measured once a second."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from examples.demo.board import Board, percentile
from examples.demo.feed import Feed
from millrace.pipelines import Run


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures at a moment; rates cover the second before it."""

    tweets: int = 0
    tweets_per_second: float = 0.0
    bytes_per_second: float = 0.0
    counts_per_second: float = 0.0
    p50_ms: int | None = None
    p99_ms: int | None = None
    lag: int = 0
    """Hashtags that are written but not counted yet."""
    batch_ms: int | None = None
    mode: str = ""


class Meter(threading.Thread):
    """Measures the figures every second, and updates the board."""

    def __init__(self, feed: Feed, board: Board) -> None:
        super().__init__(name="meter", daemon=True)
        self.figures = Figures()
        self.pipeline: Run | None = None
        self._feed, self._board = feed, board
        self._before = self._totals()
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(1.0):
            self._board.tick()
            self.figures = self._read()

    def stop(self) -> None:
        self._stopping.set()
        if self.is_alive():
            self.join()

    def _read(self) -> Figures:
        before, self._before = self._before, self._totals()
        seconds, tweets, size, counts = (
            after - earlier for after, earlier in zip(self._before, before, strict=True)
        )
        latencies = self._board.recent_latencies_ms()
        planned = self.pipeline.planned if self.pipeline else []
        progress = planned[0].progress if planned else None
        return Figures(
            tweets=self._feed.written,
            tweets_per_second=tweets / seconds,
            bytes_per_second=size / seconds,
            counts_per_second=counts / seconds,
            p50_ms=percentile(latencies, 50),
            p99_ms=percentile(latencies, 99),
            lag=max(0, self._feed.hashtags - self._board.counted),
            batch_ms=progress.durationMs.get("triggerExecution") if progress else None,
            mode=planned[0].execution.mode if planned else "",
        )

    def _totals(self) -> tuple[float, int, int, int]:
        return time.monotonic(), self._feed.written, self._feed.bytes, self._board.records
