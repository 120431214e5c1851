"""A client that sends a small record every few milliseconds, and notes how long each takes."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from millrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from millrace.wire.records import Record, build_batch

from ..wire_client import WireClient

VERSION = 9
PAUSE_SECONDS = 0.005


class Bystander:
    """Sends its records to a topic as long as the block lasts."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        batch = build_batch([Record(0, int(time.time() * 1000), b"key", b"v" * 100)])
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
        self._request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])
        self._bootstrap = bootstrap
        self._seconds: list[float] = []
        self._errors: set[int] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        if error is None:
            assert self._errors == {0}

    def _work(self) -> None:
        with WireClient(self._bootstrap) as client:
            while not self._stopping.wait(PAUSE_SECONDS):
                began = time.monotonic()
                response = client.send(self._request, VERSION)
                self._seconds.append(time.monotonic() - began)
                self._errors.add(response.responses[0].partition_responses[0].error_code)

    @property
    def sent(self) -> int:
        return len(self._seconds)

    def slower_than(self, seconds: float) -> float:
        """The share of its records that took longer than this."""
        return sum(taken > seconds for taken in self._seconds) / len(self._seconds)
