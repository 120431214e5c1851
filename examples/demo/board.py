"""Reads the output of the pipeline with a Kafka client: the top ten, and the latency of each count."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from confluent_kafka import Consumer, Message, TopicPartition

from examples.demo.feed import Feed

TOP = 10
# Ranks are compared with those from this long ago; latencies cover this long.
LOOK_BACK_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Row:
    """A hashtag in the top ten: its count, its previous rank, and its count in each step of the window."""

    rank: int
    hashtag: str
    count: int
    before: int | None
    steps: tuple[int, ...]


class Board(threading.Thread):
    """Keeps the newest counts until it is stopped."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        feed: Feed,
        *,
        window_seconds: int,
        step_seconds: int,
    ) -> None:
        super().__init__(name="board", daemon=True)
        self.records = 0
        self.counted = 0
        """The number of hashtags that are counted."""
        self.first_at: float | None = None
        self.latencies_ms: Counter[int] = Counter()
        self._recent: deque[Counter[int]] = deque([Counter()], maxlen=LOOK_BACK_SECONDS)
        self._ranks: deque[dict[str, int]] = deque(maxlen=LOOK_BACK_SECONDS)
        self._counts: dict[int, dict[str, int]] = {}
        self._feed = feed
        self._length, self._step = window_seconds, step_seconds
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "millrace-demo",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])

    def run(self) -> None:
        while not self._stopping.is_set():
            messages = self._consumer.consume(2000, timeout=0.1)
            now = time.time()
            with self._lock:
                for message in messages:
                    if message.error() is None:
                        self._read(message, now)
        self._consumer.close()

    def stop(self) -> None:
        self._stopping.set()
        if self.is_alive():
            self.join()

    def tick(self) -> None:
        """Update the history; called once a second."""
        rows = self.rows(TOP * 10)
        with self._lock:
            self._recent.append(Counter())
            self._ranks.append({row.hashtag: row.rank for row in rows})
            newest = max(self._counts, default=0)
            oldest = newest - 2 * self._length
            self._counts = {start: counts for start, counts in self._counts.items() if start >= oldest}
        self._feed.forget(oldest)

    def rows(self, number: int = TOP) -> list[Row]:
        """The top of the window that ends next, which covers almost all of the last half minute."""
        with self._lock:
            if not self._counts:
                return []
            newest = max(self._counts)
            starts = range(newest - self._length + self._step, newest + self._step, self._step)
            since = [self._counts.get(start, {}) for start in starts]
            before = self._ranks[0] if self._ranks else {}
            top = sorted(since[0].items(), key=lambda item: (-item[1], item[0]))[:number]
            return [
                Row(rank, hashtag, count, before.get(hashtag), _differences(hashtag, since))
                for rank, (hashtag, count) in enumerate(top, 1)
            ]

    def recent_latencies_ms(self) -> Counter[int]:
        with self._lock:
            return sum(self._recent, Counter())

    def _read(self, message: Message, now: float) -> None:
        value = json.loads(message.value() or b"")
        start = int(datetime.fromisoformat(value["window"]["start"]).timestamp())
        hashtag, count = value["hashtag"], value["count"]
        self.records += 1
        counts = self._counts.setdefault(start, {})
        before, counts[hashtag] = counts.get(hashtag, 0), count
        # Each hashtag was written in one step, and is measured in the window that starts with that step.
        times = self._feed.times.get((start, hashtag), ())[before:count]
        self.counted += len(times)
        if self.first_at is None:
            self.first_at = now
        for written in times:
            # Skip tweets that waited for Spark to start.
            if written > self.first_at:
                latency_ms = round((now - written) * 1000)
                self.latencies_ms[latency_ms] += 1
                self._recent[-1][latency_ms] += 1


def percentile(counted: Counter[int], percent: float) -> int | None:
    """The smallest number that this percentage of the numbers does not exceed."""
    left = counted.total() * percent / 100
    for number in sorted(counted):
        left -= counted[number]
        if left <= 0:
            return number
    return None


def _differences(hashtag: str, since: list[dict[str, int]]) -> tuple[int, ...]:
    """The counts in each step, from the counts since the start of each step."""
    totals = [counts.get(hashtag, 0) for counts in since] + [0]
    return tuple(max(0, longer - shorter) for longer, shorter in pairwise(totals))
