"""Windows at run time: which tuples are in which window, and when each is processed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from millrace.topologies.model.tuples import Tuple
from millrace.topologies.model.windows import Count, Duration, TupleWindow, Window

Source = tuple[str, str]


class _Event(NamedTuple):
    timestamp: int
    tup: Tuple


class Windowing:
    """The windows of one task. Owned by the worker's loop; not thread-safe.

    `run` processes a window that holds a tuple; `expired` gets tuples that no later window can hold, `late`
    those that came after their windows. Times are in milliseconds.
    """

    def __init__(
        self,
        window: Window,
        sources: Iterable[Source],
        *,
        run: Callable[[TupleWindow], None],
        expired: Callable[[list[Tuple]], None],
        late: Callable[[Tuple], None],
    ) -> None:
        self._window = window
        self._run = run
        self._expired = expired
        self._late = late
        self._events: list[_Event] = []
        self._previous: list[Tuple] = []
        self._newest = dict.fromkeys(sources, -1)
        """By input stream: the largest time seen, -1 before the first."""
        self._watermark: int | None = None
        self._next_end: int | None = None
        self._since_run = 0
        self._counted = 0
        """Of a window of event time that slides by tuples: the tuples that have been counted."""
        self.changed = False
        """Whether `notes` has changed since the owner cleared this."""
        self.length_ms = _milliseconds(window.length)
        self.slide_ms = _milliseconds(window.slide)

    @property
    def interval_seconds(self) -> float | None:
        """The interval between calls of `tick`, None if it need not be called."""
        if self._window.timestamp is not None:
            return self._window.watermark_seconds
        return None if self.slide_ms is None else self.slide_ms / 1000

    # Tuples

    def add(self, tup: Tuple, now_ms: int) -> None:
        """A tuple has come."""
        timestamp = self.timestamp_of(tup, now_ms)
        self.changed = True
        if self._window.timestamp is not None:
            if self._watermark is not None and timestamp < self._watermark:
                self._late(tup)
                return
            source = (tup.component, tup.stream)
            self._newest[source] = max(self._newest[source], timestamp)
            self._events.append(_Event(timestamp, tup))
            return
        self._events.append(_Event(timestamp, tup))
        if isinstance(self._window.slide, Count):
            self._since_run += 1
            if self._since_run >= self._window.slide.value:
                self._since_run = 0
                self._run_latest(now_ms)

    def timestamp_of(self, tup: Tuple, now_ms: int) -> int:
        chosen = self._window.timestamp
        if chosen is None:
            return now_ms
        return int(tup[chosen]) if isinstance(chosen, str) else int(chosen(tup))

    # State

    def notes(self, number_of: Callable[[Tuple], int]) -> list[Any]:
        """Everything but the tuples themselves, which are given by their numbers."""
        held = {id(event.tup) for event in self._events}
        return [
            [[*source, newest] for source, newest in self._newest.items()],
            self._watermark,
            self._next_end,
            self._since_run,
            self._counted,
            [number_of(tup) for tup in self._previous if id(tup) in held],
        ]

    def restore(self, notes: list[Any] | None, tuples: Mapping[int, tuple[int, Tuple]]) -> None:
        """Continue with notes, and with tuples by their numbers, each with its time."""
        self._events = [_Event(timestamp, tup) for timestamp, tup in tuples.values()]
        if notes is None:
            return
        newest, self._watermark, self._next_end, self._since_run, self._counted, previous = notes
        for component, stream, timestamp in newest:
            if (component, stream) in self._newest:
                self._newest[component, stream] = timestamp
        self._previous = [tuples[number][1] for number in previous if number in tuples]

    # Time

    def tick(self, now_ms: int) -> None:
        """Time has passed: the worker's, or that of the watermark."""
        if self._window.timestamp is None:
            if self.slide_ms is not None:
                self._run_latest(now_ms)
            return
        if not self._newest or min(self._newest.values()) < 0:
            return
        watermark = min(self._newest.values()) - round(self._window.lag_seconds * 1000)
        if self._watermark is None or watermark > self._watermark:
            self._watermark = watermark
            self.changed = True
            self._run_up_to(watermark)

    def _run_up_to(self, watermark: int) -> None:
        """Process every window of event time that the watermark has passed, in order."""
        self._events.sort(key=lambda event: event.timestamp)
        if isinstance(self._window.slide, Count):
            self._run_counts(watermark, self._window.slide.value)
            return
        assert self.slide_ms is not None
        while self._events:
            if self._next_end is None:
                self._next_end = _round_up(self._events[0].timestamp, self.slide_ms)
            if self._next_end > watermark:
                return
            self._run_one(self._next_end)
            self._skip_gap()

    def _skip_gap(self) -> None:
        """The end of the next window that has a tuple: empty ones are not processed."""
        assert self._next_end is not None and self.slide_ms is not None
        end = self._next_end + self.slide_ms
        later = [event.timestamp for event in self._events if event.timestamp > self._next_end]
        held = [event.timestamp for event in self._events if event.timestamp <= self._next_end]
        if self.length_ms is not None and not any(timestamp > end - self.length_ms for timestamp in held):
            end = max(end, _round_up(min(later), self.slide_ms)) if later else end
        self._next_end = end

    def _run_counts(self, watermark: int, slide: int) -> None:
        """Windows of event time that slide by tuples: one after each `slide` tuples below the watermark."""
        ready = [event for event in self._events if event.timestamp <= watermark]
        while len(ready) - self._counted >= slide:
            self._counted += slide
            reached = ready[: self._counted]
            dropped = self._run_held(reached, reached[-1].timestamp)
            ready = ready[dropped:]
            self._counted -= dropped

    def _run_one(self, end_ms: int) -> None:
        self._run_held([event for event in self._events if event.timestamp <= end_ms], end_ms)

    def _run_latest(self, now_ms: int) -> None:
        self._run_held(list(self._events), now_ms)

    def _run_held(self, reached: list[_Event], end_ms: int) -> int:
        """Process the window that ends now; returns how many tuples it was the last one for."""
        if isinstance(self._window.length, Count):
            inside = reached[-self._window.length.value :]
            start_ms = inside[0].timestamp - 1 if inside else end_ms
        else:
            assert self.length_ms is not None
            start_ms = end_ms - self.length_ms
            inside = [event for event in reached if event.timestamp > start_ms]
        self.changed = True
        tuples = [event.tup for event in inside]
        before = {id(tup) for tup in self._previous}
        held = {id(tup) for tup in tuples}
        if tuples:
            new = [tup for tup in tuples if id(tup) not in before]
            gone = [tup for tup in self._previous if id(tup) not in held]
            self._run(TupleWindow(tuples, new, gone, start_ms, end_ms))
            self._previous = tuples
        return self._drop(reached, inside, end_ms)

    def _drop(self, reached: list[_Event], inside: list[_Event], end_ms: int) -> int:
        """Let go of tuples that no later window can hold."""
        if isinstance(self._window.length, Count):
            kept = self._window.length.value
            if isinstance(self._window.slide, Count):
                kept = max(kept - self._window.slide.value, 0)
            done = reached[: max(len(reached) - kept, 0)]
        else:
            assert self.length_ms is not None
            next_start = end_ms - self.length_ms
            if self.slide_ms is not None:
                next_start += self.slide_ms
            done = [event for event in reached if event.timestamp <= next_start]
        if not done:
            return 0
        gone = {id(event.tup) for event in done}
        self._events = [event for event in self._events if id(event.tup) not in gone]
        self._expired([event.tup for event in done])
        return len(done)


def _milliseconds(length: Count | Duration) -> int | None:
    return round(length.seconds * 1000) if isinstance(length, Duration) else None


def _round_up(timestamp: int, slide_ms: int) -> int:
    return math.ceil(timestamp / slide_ms) * slide_ms
