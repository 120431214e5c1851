"""How far a long piece of work is: a bar in records and bytes on a terminal, plain lines elsewhere."""

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
    """An amount of data: records, and about how many bytes they are."""

    records: int
    bytes: int

    def share(self, records: int) -> Extent:
        """The part of it that so many of its records are."""
        return Extent(records, self.bytes * records // self.records if self.records else 0)

    def __str__(self) -> str:
        return f"{self.records:,} records, {size(self.bytes)}"


def size(count: float) -> str:
    """Bytes as people write them: 3.2 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


class Shown(Protocol):
    """Something that shows progress while its block lasts."""

    def update(self, done: int, whole: Extent | None = None) -> None:
        """So many records are done, of the whole that was given or of a new one."""


class Bar(AbstractContextManager["Bar"]):
    """Shows the progress of one piece of work on a console; without a console, nothing."""

    def __init__(
        self,
        what: str,
        whole: Extent,
        console: Console | None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._whole = whole
        self._now = now
        self._shown: Shown | None = None
        self._console = console

    def __enter__(self) -> Self:
        if self._console is not None:
            kind = _OnTerminal if self._console.is_terminal else _Lines
            self._shown = kind(self._what, self._whole, self._console, self._now)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(self._shown, _OnTerminal):
            self._shown.close()

    def update(self, done: int, whole: Extent | None = None) -> None:
        """So many records are done, of the whole that was given or of a new one."""
        if self._shown is not None:
            self._shown.update(done, whole)


class _Lines:
    """A line every few seconds, if something has changed."""

    def __init__(self, what: str, whole: Extent, console: Console, now: Callable[[], float]) -> None:
        self._what = what
        self._whole = whole
        self._console = console
        self._now = now
        self._next = now() + LINE_SECONDS
        self._last = 0
        self._print(f"{what}: {whole} to read")

    def update(self, done: int, whole: Extent | None = None) -> None:
        self._whole = whole or self._whole
        if done == self._last or self._now() < self._next:
            return
        self._next = self._now() + LINE_SECONDS
        self._last = done
        percent = 100 * done // max(self._whole.records, 1)
        part = self._whole.share(done)
        self._print(
            f"{self._what}: {done:,} of {self._whole.records:,} records, {size(part.bytes)}"
            f" of {size(self._whole.bytes)} ({percent} %)"
        )

    def _print(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, highlight=False, markup=False)


class _OnTerminal:
    """A bar that grows; it leaves the terminal as it was."""

    def __init__(self, what: str, whole: Extent, console: Console, now: Callable[[], float]) -> None:
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
        self._task = self._bar.add_task(what, total=whole.records, **self._fields(0))
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
