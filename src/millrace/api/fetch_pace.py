"""Pacing of Fetch responses to clients that stop fetching when their queue is full.

librdkafka fetches ahead of its application into one queue. When the queue holds `queued.min.messages`
(100,000) or `queued.max.messages.kbytes` (64 MB), librdkafka stops fetching for `fetch.queue.backoff.ms`
(1 s), however soon the application empties the queue. The faster the responses, the sooner it stops. A client
that catches up therefore gets records about as fast as its application takes them: a Python client at a speed
that is known beforehand, other clients at the speed that their first stop shows.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from math import inf

from millrace.api.fetch_sessions import Target
from millrace.storage.file_slice import FileSlice
from millrace.wire.messages.fetch import PartitionData
from millrace.wire.records import HEADER_BYTES, read_header

MAX_BYTES = 2**31 - 1

# librdkafka's default queue, and its pause when the queue is full.
QUEUE_RECORDS = 100_000
QUEUE_BYTES = 64 << 20
BACKOFF_SECONDS = 1.0
# A response fills at most this part of the queue.
RESPONSES_PER_QUEUE = 4
# The least that a response may have, and the most before the size of records is known.
SMALL_RESPONSE_BYTES = 1 << 20
# A client that is behind and sends no request for this long has stopped. Others take milliseconds.
STOP_SECONDS = 0.5

# confluent-kafka-python makes one object per record, in 0.8 µs.
PYTHON_RECORDS_PER_SECOND = 1.2e6
# The application shares the machine with the client's own thread. After each response the thread rests for
# this part of the time that it was busy, unless the records arrive more slowly than this anyway.
PYTHON_REST = 0.3
PYTHON_REST_SECONDS_PER_RECORD = 3e-6

# The part of the measured speed at which a client continues after a stop.
CAUTION = 0.95
# At least these parts of the records sent before a stop count as queued, and as consumed.
QUEUED_PART = 0.25
CONSUMED_PART = 0.125
# Increase of the speed per second, for each second since the last stop: slow while the client may stop again,
# fast once that is unlikely.
GROWTH_PER_SECOND = 0.003
MAX_GROWTH_PER_SECOND = 0.5
# From here on responses are not paced.
MAX_RECORDS_PER_SECOND = 4e6
# A client that was late may catch up by this much.
CREDIT_SECONDS = 0.03


def pacer_for(client_software_name: str) -> Pacer | None:
    """The pacer of a client that is based on librdkafka, by the name that it sends in ApiVersions."""
    if client_software_name == "confluent-kafka-python":
        return Pacer(PYTHON_RECORDS_PER_SECOND, rest=PYTHON_REST)
    if client_software_name.startswith("confluent-kafka") or "rdkafka" in client_software_name:
        return Pacer()
    return None


class Pacer:
    """Decides on the size and the time of one connection's responses. Owned by the broker loop."""

    __slots__ = (
        "_began_at",
        "_changed_at",
        "_due_at",
        "_is_behind",
        "_partitions",
        "_queue_records",
        "_records",
        "_records_per_byte",
        "_records_per_second",
        "_rest",
        "_sent_at",
        "_sent_records",
    )

    def __init__(self, records_per_second: float = inf, *, rest: float = 0.0) -> None:
        self._records_per_second = records_per_second
        self._rest = rest
        self._changed_at = 0.0
        # The earliest time of the next response.
        self._due_at = 0.0
        # The last request and its response.
        self._partitions = 0
        self._records = 0.0
        self._records_per_byte = 0.0
        self._sent_at = 0.0
        self._is_behind = False
        # The records sent since the client last stopped, or since it was last up to date.
        self._began_at = 0.0
        self._sent_records = 0.0
        # The fewest records after which the client stopped. Its queue holds no more.
        self._queue_records = inf

    def on_request(self, partitions: int, now: float) -> int:
        """Take note of a request for so many partitions; returns the most bytes for its response."""
        if not self._is_behind:
            self._began_at, self._sent_records = now, 0.0
            self._changed_at = self._changed_at or now
        elif now - self._sent_at > STOP_SECONDS or partitions < self._partitions:
            # librdkafka stops for each partition by itself, and requests all the others.
            self._on_stop(now)
        elif self._rest and self._records_per_second < inf:
            rested_at = now + self._rest * (now - self._sent_at)
            slowest = self._sent_at + self._records * PYTHON_REST_SECONDS_PER_RECORD
            self._due_at = max(self._due_at, min(rested_at, slowest))
        self._partitions = partitions
        return MAX_BYTES if self._records_per_second == inf else self._response_bytes()

    def on_parked(self) -> None:
        """Take note that the request waits for new records: the client is up to date."""
        self._is_behind = False

    def on_response(
        self,
        results: Iterable[tuple[Target, PartitionData]],
        size: int,
        now: float,
        max_wait_seconds: float,
    ) -> float:
        """Take note of a response of so many bytes; returns the seconds that it has to wait."""
        self._is_behind, sample = _look_at(results)
        if sample is not None:
            self._records_per_byte = _records_per_byte(sample)
        self._records = size * self._records_per_byte
        wait_seconds = 0.0
        # New records are never held back.
        if self._is_behind and self._records_per_second < inf:
            wait_seconds = min(max(self._due_at - now, 0.0), max_wait_seconds)
            self._speed_up(now + wait_seconds)
            late_since = max(self._due_at, now + wait_seconds - CREDIT_SECONDS)
            self._due_at = late_since + min(self._records, QUEUE_RECORDS) / self._records_per_second
        self._sent_at = now + wait_seconds
        self._sent_records += self._records
        return wait_seconds

    def _response_bytes(self) -> int:
        if not self._records_per_byte:
            return SMALL_RESPONSE_BYTES
        queue_bytes = min(min(self._queue_records, QUEUE_RECORDS) / self._records_per_byte, QUEUE_BYTES)
        return max(int(queue_bytes / RESPONSES_PER_QUEUE), SMALL_RESPONSE_BYTES)

    def _on_stop(self, now: float) -> None:
        """Continue at the speed at which the application took records until the queue was full."""
        sent = self._sent_records
        default_queue = min(QUEUE_RECORDS, QUEUE_BYTES * self._records_per_byte)
        # Otherwise the queue was still full of earlier records, or the client stopped for another reason.
        if sent >= min(self._queue_records, default_queue) / 2:
            # With its stops the client gets this much, so it should not get less.
            with_stops = sent / (max(now, self._sent_at + BACKOFF_SECONDS) - self._began_at)
            self._records_per_second = max(CAUTION * self._consumed_per_second(default_queue), with_stops)
            self._queue_records = min(self._queue_records, sent)
            self._changed_at = now
        self._began_at, self._sent_records = now, 0.0

    def _consumed_per_second(self, default_queue: float) -> float:
        """The speed of the application until its client stopped."""
        sent = self._sent_records
        # The last response does not count, since nothing shows how long it took.
        timed = sent - self._records
        if timed <= 0:
            return PYTHON_RECORDS_PER_SECOND
        seconds = max(self._sent_at - self._began_at, 0.001) * sent / timed
        queued = min(self._queue_records, max(default_queue, sent * QUEUED_PART))
        return max(sent - queued, sent * CONSUMED_PART) / seconds

    def _speed_up(self, now: float) -> None:
        growth = min(GROWTH_PER_SECOND * (now - self._changed_at), MAX_GROWTH_PER_SECOND)
        self._records_per_second *= 1 + growth * min(now - self._sent_at, 1.0)
        if self._records_per_second > MAX_RECORDS_PER_SECOND:
            self._records_per_second = self._queue_records = inf


def _look_at(results: Iterable[tuple[Target, PartitionData]]) -> tuple[bool, FileSlice | None]:
    """Whether a partition has more records than were read, and a sample of those that were read."""
    sample = None
    for _, data in results:
        records = data.records
        if isinstance(records, FileSlice):
            sample = records
            if records.next_offset < data.high_watermark:
                return True, sample
    return False, sample


def _records_per_byte(sample: FileSlice) -> float:
    """Density of the first batch; the others are assumed to be alike."""
    try:
        header = read_header(os.pread(sample.file.fileno(), HEADER_BYTES, sample.position))
    except (OSError, struct.error):
        # Sending the records fails too, and is reported then.
        return 0.0
    return max(header.record_count, 0) / header.size
