"""Progress of a long batch in records and bytes: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from rich.console import Console

LINE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Extent:
    """An amount of data: a number of records, and about how many bytes they have."""

    records: int
    bytes: int

    def share(self, records: int) -> Extent:
        """The extent of some of its records."""
        return Extent(records, self.bytes * records // self.records if self.records else 0)

    def __str__(self) -> str:
        return f"{self.records:,} records, {size(self.bytes)}"


def size(count: float) -> str:
    """Bytes in words: 3.2 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


class Display(Protocol):
    """A display of progress."""

    def update(self, done: int, whole: Extent | None = None) -> None:
        """Show that this many records are done, out of the initial extent or a new one."""


class ProgressBar(AbstractContextManager["ProgressBar"]):
    """Shows the progress of one piece of work on a console; shows nothing without a console."""

    def __init__(
        self,
        label: str,
        whole: Extent,
        console: Console | None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._label = label
        self._whole = whole
        self._now = now
        self._display: Display | None = None
        self._console = console

    def __enter__(self) -> Self:
        if self._console is not None:
            display = _TerminalBar if self._console.is_terminal else _Lines
            self._display = display(self._label, self._whole, self._console, self._now)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(self._display, _TerminalBar):
            self._display.close()

    def update(self, done: int, whole: Extent | None = None) -> None:
        """Show that this many records are done, out of the initial extent or a new one."""
        if self._display is not None:
            self._display.update(done, whole)


class _Lines:
    """Prints a line every few seconds if something has changed."""

    def __init__(self, label: str, whole: Extent, console: Console, now: Callable[[], float]) -> None:
        self._label = label
        self._whole = whole
        self._console = console
        self._now = now
        self._next = now() + LINE_SECONDS
        self._last = 0
        self._print(f"{label}: {whole} to read")

    def update(self, done: int, whole: Extent | None = None) -> None:
        self._whole = whole or self._whole
        if done == self._last or self._now() < self._next:
            return
        self._next = self._now() + LINE_SECONDS
        self._last = done
        percent = 100 * done // max(self._whole.records, 1)
        part = self._whole.share(done)
        self._print(
            f"{self._label}: {done:,} of {self._whole.records:,} records, {size(part.bytes)}"
            f" of {size(self._whole.bytes)} ({percent} %)"
        )

    def _print(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, highlight=False, markup=False)


class _TerminalBar:
    """A bar that grows and disappears at the end."""

    def __init__(self, label: str, whole: Extent, console: Console, now: Callable[[], float]) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._whole = whole
        self._began = now()
        self._now = now
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[records]}"),
            TextColumn("{task.fields[bytes]}", style="dim"),
            TextColumn("{task.fields[rate]}", style="cyan"),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task(label, total=whole.records, **self._fields(0))
        self._bar.start()

    def update(self, done: int, whole: Extent | None = None) -> None:
        self._whole = whole or self._whole
        self._bar.update(self._task, completed=done, total=self._whole.records, **self._fields(done))

    def close(self) -> None:
        self._bar.stop()

    def _fields(self, done: int) -> dict[str, Any]:
        seconds = max(self._now() - self._began, 0.001)
        return {
            "records": f"{done:,}/{self._whole.records:,} records",
            "bytes": f"{size(self._whole.share(done).bytes)}/{size(self._whole.bytes)}",
            "rate": f"{done / seconds:,.0f}/s",
        }
