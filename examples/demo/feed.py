"""Writes tweets to the log at their times, and remembers when each hashtag was written."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque

from confluent_kafka import KafkaError, Message, Producer

from examples.tweets import Tweet, paced, tweets

FLUSH_SECONDS = 5.0
LATEST_COUNT = 3


class Feed(threading.Thread):
    """Writes to a topic until it is stopped; its figures may be read at any time.

    `times` holds the time of writing of every hashtag, by the step of the windows that it belongs to. The
    count of a hashtag in the window that starts with that step says how many of these have been counted.
    """

    def __init__(self, bootstrap: str, topic: str, rate: float, seed: int, *, step_seconds: int) -> None:
        super().__init__(name="feed", daemon=True)
        self.written = 0
        self.bytes = 0
        self.hashtags = 0
        self.failure: str | None = None
        self.latest: deque[Tweet] = deque(maxlen=LATEST_COUNT)
        self.times: dict[tuple[int, str], list[float]] = defaultdict(list)
        self._topic = topic
        self._stream = tweets(rate, seed=seed, start=time.time())
        self._step = step_seconds
        self._stopping = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 5, "compression.type": "lz4", "log_level": 0}
        )

    def run(self) -> None:
        for tweet in paced(self._stream):
            if self._stopping.is_set() or self.failure:
                break
            self._write(tweet)
            self._producer.poll(0)
        self._producer.flush(FLUSH_SECONDS)

    def stop(self) -> None:
        self._stopping.set()
        if self.is_alive():
            self.join(2 * FLUSH_SECONDS)

    def forget(self, start: int) -> None:
        """Drop the times of earlier steps."""
        for key in [key for key in list(self.times) if key[0] < start]:
            del self.times[key]

    def _write(self, tweet: Tweet) -> None:
        value = tweet.json().encode()
        now, step = time.time(), int(tweet.at) // self._step * self._step
        for hashtag in tweet.hashtags:
            self.times[step, hashtag].append(now)
        self.hashtags += len(tweet.hashtags)
        while True:
            try:
                self._producer.produce(self._topic, value, tweet.user.encode(), on_delivery=self._delivered)
                break
            except BufferError:
                self._producer.poll(0.05)
        self.latest.append(tweet)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failure = f"the log does not accept tweets: {error.str()}"
            return
        self.written += 1
        self.bytes += len(message)
