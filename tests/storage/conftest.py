"""Fixtures of the storage tests: a clock that stands still, a disk that can fail, logs, batches."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from millrace.config import LogConfig
from millrace.storage.log import Log
from millrace.testing.clock import ManualClock
from millrace.testing.disk import FaultyDisk
from millrace.wire.records import Record, build_batch


class OpenLog(Protocol):
    def __call__(self, config: LogConfig | None = None, name: str = "events-0", **options: Any) -> Log: ...


class MakeBatch(Protocol):
    def __call__(self, count: int = 1, size: int = 100, **options: Any) -> memoryview: ...


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def open_log(tmp_path: Path, clock: ManualClock, disk: FaultyDisk) -> Iterator[OpenLog]:
    """Opens logs below the test's directory, and lets go of their files at the end."""
    opened: list[Log] = []

    def open_(config: LogConfig | None = None, name: str = "events-0", **options: Any) -> Log:
        options = {"clock": clock, "disk": disk, **options}
        log = Log.open(tmp_path / name, config or LogConfig(), **options)
        opened.append(log)
        return log

    yield open_
    for log in opened:
        log.abandon()


@pytest.fixture
def make_batch(clock: ManualClock) -> MakeBatch:
    """Builds what a client would send: offsets from 0, timestamps of now."""

    def make(count: int = 1, size: int = 100, **options: Any) -> memoryview:
        timestamp = options.pop("timestamp", clock.now_ms())
        value: Callable[[int], bytes] = options.pop("value", lambda number: bytes([number % 256]) * size)
        key: Callable[[int], bytes | None] = options.pop("key", lambda number: b"key-%d" % number)
        records = [Record(number, timestamp + number, key(number), value(number)) for number in range(count)]
        return memoryview(bytearray(build_batch(records, **options)))

    return make
