"""Answering clients that catch up no faster than their applications take the records.

librdkafka fetches ahead, and once it holds as much as it may, 100,000 records or 64 MB by default, it asks
for nothing more for a second, although the application is through with them long before. The faster the
answers, the sooner it stops. So a client that stops while there is more for it is from then on sent somewhat
less than its application took, and gradually more again.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Protocol

from millrace.api.fetch_sessions import Key, Target

# Whoever asks for more only after that long had stopped asking; others are back within milliseconds.
PAUSE_SECONDS = 0.5
# A partition that nobody has asked for in so long is another client's now.
GONE_SECONDS = 10.0
# The part of its speed that a client is sent at first.
CAUTION = 0.9
# How much faster answers become in a second, for each second since the client last stopped: slowly where it
# may stop again, and quickly where that turns out to be far off.
GROWTH_PER_SECOND = 0.01
MAX_GROWTH_PER_SECOND = 0.5
# From here on the pace is no limit any more.
MAX_BYTES_PER_SECOND = 1e9
# An answer has at most this part of what the client holds, so that it takes several to make it stop.
ANSWERS_HELD = 4
MIN_ANSWER_BYTES = 1 << 20
MAX_BYTES = 2**31 - 1


class Answer(Protocol):
    """What was read for a request."""

    size: int
    left: list[Key]
    """Partitions that have more than what was read."""
    seen: list[Key]
    """Partitions that were read to their end."""


class FetchPace:
    """The pace of one connection's answers. Owned by the broker loop; not thread-safe."""

    __slots__ = (
        "_answered",
        "_began",
        "_bytes_per_second",
        "_changed",
        "_due",
        "_held",
        "_is_behind",
        "_left",
        "_sent",
        "max_bytes",
    )

    def __init__(self) -> None:
        self._bytes_per_second = inf
        # When the next answer may go out.
        self._due = 0.0
        # Whether there is more than the client was sent; once it has a pace, of which partitions, and when
        # each of them was last answered.
        self._is_behind = False
        self._left: dict[Key, float] = {}
        # What was sent since the client last stopped: from when to when, and how much.
        self._began = self._answered = 0.0
        self._sent = 0
        # The least after which it ever stopped: no less than it holds.
        self._held = MAX_BYTES
        self._changed = 0.0
        self.max_bytes = MAX_BYTES
        """The most that one answer should have."""

    def asked(self, targets: Iterable[Target], now: float) -> None:
        """The client asks for more of these."""
        if not self._is_behind:
            # It has seen everything there was: what comes is new.
            self._began, self._sent = now, 0
            return
        has_stopped = self._answered < now - PAUSE_SECONDS
        if self._bytes_per_second < inf:
            has_stopped = self._has_stopped_for_some(targets, now - PAUSE_SECONDS)
        if has_stopped:
            self._slow_down(now)

    def _has_stopped_for_some(self, targets: Iterable[Target], before: float) -> bool:
        """Whether a client that is sent about what it can take has not asked for some partitions for long."""
        answered = [self._left[target.key] for target in targets if target.key in self._left]
        # A pause that began before the last change says nothing of it.
        return any(self._changed < moment < before for moment in answered)

    def _slow_down(self, now: float) -> None:
        """Take the speed at which it took records, but no less than what it got with its pauses."""
        # What it holds when it stops was sent, but not taken; the first time there is no telling how much.
        taken = self._sent - min(self._held, self._sent / 2)
        seconds = max(self._answered - self._began, 0.001)
        self._bytes_per_second = max(CAUTION * taken / seconds, self._sent / (now - self._began))
        self._held = min(self._held, self._sent)
        self.max_bytes = max(self._held // ANSWERS_HELD, MIN_ANSWER_BYTES)
        self._began, self._sent, self._changed = now, 0, now

    def answer(self, answer: Answer, now: float, max_wait_seconds: float) -> float:
        """Take note of an answer; returns how long it should wait."""
        wait_seconds = 0.0
        if self._bytes_per_second < inf:
            wait_seconds = self._take_time(answer, now, max_wait_seconds)
            now += wait_seconds
        self._is_behind = bool(answer.left or self._left)
        self._answered = now
        self._sent += answer.size
        return wait_seconds

    def _take_time(self, answer: Answer, now: float, max_wait_seconds: float) -> float:
        for key in answer.seen:
            self._left.pop(key, None)
        if self._left and min(self._left.values()) < now - GONE_SECONDS:
            self._left = {key: moment for key, moment in self._left.items() if moment >= now - GONE_SECONDS}
        if not answer.left:
            return 0.0
        wait_seconds = min(max(self._due - now, 0.0), max_wait_seconds)
        now += wait_seconds
        self._left.update(dict.fromkeys(answer.left, now))
        self._speed_up(now)
        self._due = now + answer.size / self._bytes_per_second
        return wait_seconds

    def _speed_up(self, now: float) -> None:
        growth = min(GROWTH_PER_SECOND * (now - self._changed), MAX_GROWTH_PER_SECOND)
        self._bytes_per_second *= 1 + growth * min(now - self._answered, 1.0)
        if self._bytes_per_second > MAX_BYTES_PER_SECOND:
            self._bytes_per_second = inf
            self._held = self.max_bytes = MAX_BYTES
            self._left.clear()
