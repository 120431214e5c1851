"""Windows over the tuples of a stream, by count or by time."""

from __future__ import annotations

from dataclasses import dataclass

from millrace.trident.errors import TridentError


@dataclass(frozen=True)
class Window:
    """The length of windows and the distance between them, in tuples or in seconds."""

    length: float
    slide: float
    in_seconds: bool = False

    def __post_init__(self) -> None:
        if self.length <= 0 or self.slide <= 0:
            raise TridentError("the length and the slide of a window must be positive")
        if self.slide > self.length:
            raise TridentError(
                f"windows of {self.length:g} that slide by {self.slide:g} would skip tuples; slide by less"
            )


def tumbling(*, count: int | None = None, seconds: float | None = None) -> Window:
    """Windows that follow each other: every tuple is in one of them."""
    length, in_seconds = _length(count, seconds)
    return Window(length, length, in_seconds)


def sliding(
    *,
    count: int | None = None,
    seconds: float | None = None,
    slide_count: int | None = None,
    slide_seconds: float | None = None,
) -> Window:
    """Windows that overlap."""
    length, in_seconds = _length(count, seconds)
    slide, slides_in_seconds = _length(slide_count, slide_seconds)
    if in_seconds != slides_in_seconds:
        raise TridentError("a window and its slide are both in tuples or both in seconds")
    return Window(length, slide, in_seconds)


def _length(count: int | None, seconds: float | None) -> tuple[float, bool]:
    if count is not None and seconds is None:
        return count, False
    if seconds is not None and count is None:
        return seconds, True
    raise TridentError("a window has a length in tuples (count=) or in seconds (seconds=)")
