"""Windowed bolts: tuples processed in groups, by count or by time, tumbling or sliding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from millrace.topologies.model.bolts import Bolt
from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.specs import ComponentSpec
from millrace.topologies.model.streams import DEFAULT_STREAM
from millrace.topologies.model.tuples import Tuple


@dataclass(frozen=True, slots=True)
class Count:
    """A length in tuples."""

    value: int


@dataclass(frozen=True, slots=True)
class Duration:
    """A length in seconds."""

    seconds: float


Length = Count | Duration


@dataclass(frozen=True)
class Window:
    """The length of windows and the interval between them. Use `Window.tumbling` or `Window.sliding`.

    Windows of time follow the worker's clock, unless `timestamp` names the field that holds each tuple's time
    in milliseconds, or is a function that returns it. They then end when the watermark has passed them: the
    smallest, over the input streams, of the largest time seen on each, less `lag_seconds`.
    """

    length: Length
    slide: Length
    timestamp: str | Callable[[Tuple], int] | None = None
    lag_seconds: float = 0.0
    watermark_seconds: float = 1.0
    """The interval between updates of the watermark."""
    late_stream: str | None = None
    """The stream for tuples that come after their window; its only field is the tuple's values."""

    @classmethod
    def tumbling(cls, length: Length, **options: Any) -> Window:
        """Windows that follow each other: every tuple is in one of them."""
        return cls(length, length, **options)

    @classmethod
    def sliding(cls, length: Length, slide: Length | None = None, **options: Any) -> Window:
        """Windows that overlap; without a slide there is one for every tuple."""
        return cls(length, Count(1) if slide is None else slide, **options)


class TupleWindow:
    """The tuples of one window, in the order they came."""

    def __init__(
        self, tuples: Sequence[Tuple], new: Sequence[Tuple], expired: Sequence[Tuple], start: int, end: int
    ) -> None:
        self.tuples = tuples
        self.new = new
        """Those that were not in the window before."""
        self.expired = expired
        """Those that were in the window before and are not in this one."""
        self.start_timestamp = start
        """In milliseconds; the first moment that counts is one later."""
        self.end_timestamp = end

    def get(self) -> Sequence[Tuple]:
        return self.tuples

    def get_new(self) -> Sequence[Tuple]:
        return self.new

    def get_expired(self) -> Sequence[Tuple]:
        return self.expired

    def __iter__(self) -> Any:
        return iter(self.tuples)

    def __len__(self) -> int:
        return len(self.tuples)


class WindowedBolt(Bolt):
    """Processes tuples in windows. What it emits is anchored to all tuples of the window.

    A tuple is acked when it has left its last window, so windows must be shorter than the message time-out.
    """

    window: ClassVar[Window | None] = None
    """Set it on the class, or pass `window=` to the spec."""
    holds_tuples = True

    def __init__(self, window: Window | None = None) -> None:
        self._window = window
        self._anchors: Sequence[Tuple] = ()

    def process_window(self, window: TupleWindow) -> None:
        """Process the tuples of one window."""
        raise NotImplementedError

    def window_of(self) -> Window:
        """The window of this instance."""
        chosen = self._window or type(self).window
        assert chosen is not None, "checked when the topology was built"
        return chosen

    def run_window(self, window: TupleWindow) -> None:
        """Called by the runtime."""
        self._anchors = window.tuples
        try:
            self.process_window(window)
        finally:
            self._anchors = ()

    def emit(
        self,
        tup: Sequence[Any],
        stream: str = DEFAULT_STREAM,
        anchors: Sequence[Tuple] | None = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        if anchors is None and self.auto_anchor and self._anchors:
            anchors = self._anchors
        return super().emit(tup, stream, anchors, direct_task, need_task_ids)

    @classmethod
    def check_spec(cls, spec: ComponentSpec, label: str) -> None:
        super().check_spec(spec, label)
        instance = cls(*spec.arguments, **spec.keywords)
        window = instance._window or cls.window
        if window is None:
            raise TopologyError(
                f"the windowed bolt {label} has no window; "
                "set window = Window.tumbling(Duration(10)) on its class or in its spec"
            )
        _check_window(window, spec, label)


def _check_window(window: Window, spec: ComponentSpec, label: str) -> None:
    for length in (window.length, window.slide):
        if not isinstance(length, (Count, Duration)):
            raise TopologyError(f"{label}: a window's length is Count(5) or Duration(10), not {length!r}")
        number = length.value if isinstance(length, Count) else length.seconds
        if number <= 0:
            raise TopologyError(f"{label}: a window's length must be positive, not {number}")
    if window.late_stream is not None:
        if window.timestamp is None:
            raise TopologyError(f"{label}: only windows with a timestamp have late tuples")
        if window.late_stream not in spec.streams:
            raise TopologyError(
                f"{label}: the stream for late tuples, {window.late_stream}, is not declared; "
                f"add Stream(['late_tuple'], name={window.late_stream!r}) to its outputs"
            )
    if isinstance(window.timestamp, str):
        for source in spec.inputs:
            fields = source.spec.streams[source.stream].fields if source.stream in source.spec.streams else ()
            if window.timestamp not in fields:
                raise TopologyError(
                    f"{label} reads the time from the field {window.timestamp!r}, but {source.spec.name} "
                    f"emits {', '.join(fields) or 'no fields'}"
                )
