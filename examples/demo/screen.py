"""The display of the demo: a top ten and the figures on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from zlib import crc32

from rich.box import ROUNDED, SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from examples.demo.board import TOP, Board, Row
from examples.demo.feed import Feed
from examples.demo.figures import Figures, Meter
from examples.tweets import Tweet

WIDTH = 84
BAR_WIDTH = 28
LEVELS = "▁▂▃▄▅▆▇█"
COLORS = ("magenta", "cyan", "green", "yellow", "bright_blue", "bright_red")


class Screen:
    """The content of the live display."""

    def __init__(self, feed: Feed, board: Board, meter: Meter) -> None:
        self.hint = "Ctrl-C ends it"
        self._feed, self._board, self._meter = feed, board, meter
        self._spinner = Spinner("dots", style="bold cyan")
        self.wait_for("Spark is starting")

    def wait_for(self, step: str) -> None:
        """Show this step until the first result."""
        self._waiting_for, self._since = step, time.monotonic()

    def __rich__(self) -> RenderableType:
        rows = self._board.rows()
        return Panel(
            Group(self._top(rows) if rows else self._waiting(), self._figures(), Text(), self._tweets()),
            box=ROUNDED,
            title="[bold]millrace[/bold]  hashtags of the last 30 seconds",
            subtitle=f"[dim]{self.hint}[/dim]",
            width=WIDTH,
            border_style="bright_black",
        )

    def _waiting(self) -> RenderableType:
        self._spinner.update(
            text=Text.assemble(
                (self._waiting_for, "bold"),
                (f"  {time.monotonic() - self._since:.0f} s", "dim"),
                f"\n\n{self._feed.written:,} tweets are in the log, and will be counted once Spark runs",
            )
        )
        # As high as the top ten, so that nothing moves when it appears.
        return Padding(self._spinner, (2, 2, TOP - 2, 2))

    def _top(self, rows: Sequence[Row]) -> RenderableType:
        table = Table(box=SIMPLE_HEAD, header_style="dim", padding=(0, 1, 0, 0), expand=True)
        table.add_column("", justify="right", width=2)
        table.add_column("", width=3)
        table.add_column("hashtag", ratio=1, no_wrap=True, overflow="ellipsis")
        table.add_column("tweeted", justify="right", width=7)
        table.add_column("", width=BAR_WIDTH, no_wrap=True)
        table.add_column("lately", width=6, no_wrap=True)
        most = max(row.count for row in rows)
        for row in rows:
            # By name, so that a hashtag keeps its colour at every rank.
            color = COLORS[crc32(row.hashtag.encode()) % len(COLORS)]
            table.add_row(
                str(row.rank),
                change(row),
                Text(row.hashtag, style=f"bold {color}"),
                f"{row.count:,}",
                Text(bar(row.count / most, BAR_WIDTH), style=color),
                Text(sparkline(row.steps), style=color),
            )
        for _ in range(TOP - len(rows)):
            table.add_row()
        return table

    def _figures(self) -> RenderableType:
        now = self._meter.figures
        grid = Table.grid(padding=(0, 1, 0, 0), expand=True)
        for _ in range(4):
            grid.add_column(style="dim", no_wrap=True)
            grid.add_column(style="bold", justify="right", no_wrap=True)
            grid.add_column(ratio=1)
        grid.add_row(
            *("in", f"{now.tweets_per_second:,.0f} tweets/s", ""),
            *("latency p50", milliseconds(now.p50_ms), ""),
            *("lag", f"{now.lag:,}", ""),
            *("batch", milliseconds(now.batch_ms)),
        )
        grid.add_row(
            *("out", f"{now.counts_per_second:,.0f} counts/s", ""),
            *("latency p99", milliseconds(now.p99_ms), ""),
            *("log", f"{now.tweets:,}", ""),
            *("mode", now.mode or "-"),
        )
        return Padding(grid, (0, 1))

    def _tweets(self) -> RenderableType:
        return Padding(Group(*map(_line, list(self._feed.latest))), (0, 1), style="dim")


def plain(seconds: float, rows: Sequence[Row], now: Figures) -> str:
    """The figures and the top five as a line of text."""
    top = "  ".join(f"{row.rank}. {row.hashtag} {row.count:,}" for row in rows[:5])
    return (
        f"{seconds:3.0f} s | {now.tweets_per_second:,.0f} tweets/s in,"
        f" {now.counts_per_second:,.0f} counts/s out,"
        f" latency p50 {milliseconds(now.p50_ms)} p99 {milliseconds(now.p99_ms)},"
        f" lag {now.lag:,}, batch {milliseconds(now.batch_ms)} | {top}"
    )


def bar(share: float, width: int) -> str:
    """A bar with a resolution of half a character."""
    halves = max(1, round(share * width * 2))
    return "━" * (halves // 2) + "╸" * (halves % 2)


def sparkline(numbers: Sequence[int]) -> str:
    """Numbers as small columns; the highest is full."""
    most = max(numbers, default=0)
    return "".join(LEVELS[round(number / most * 7)] if most else LEVELS[0] for number in numbers)


def change(row: Row) -> Text:
    """The change of the rank, up or down."""
    if row.before is None:
        return Text("new", style="bold bright_green")
    if row.before == row.rank:
        return Text("·", style="dim")
    up = row.before - row.rank
    return Text(f"▲{up}", style="bright_green") if up > 0 else Text(f"▼{-up}", style="bright_red")


def milliseconds(number: int | None) -> str:
    if number is None:
        return "-"
    return f"{number:,} ms" if number < 10_000 else f"{number / 1000:.1f} s"


def _line(tweet: Tweet) -> Text:
    return Text(f"@{tweet.user}  {tweet.text}", no_wrap=True, overflow="ellipsis")
