"""Whatever is appended, rolled, cleaned and reopened: a compacted log tells the same story as a dict."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.config import BrokerConfig, LogConfig
from millrace.disk import Disk
from millrace.storage import cleaner as cleaner_module
from millrace.storage.cleaner import Cleaner
from millrace.storage.compaction import Compaction, Job, Pass, Replacement
from millrace.storage.log import Log
from millrace.testing import ManualClock
from millrace.testing.timers import ManualTimers
from millrace.wire.compression import Codec
from millrace.wire.records import Record, build_batch, iterate_batches, iterate_records

DELETE_RETENTION_MS = 1000

keys = st.sampled_from([b"", b"a", b"b", b"c", b"d" * 39, b"d" * 40, b"e" * 41, b"f" * 100])
tombstones_or_values = st.none() | st.binary(max_size=200)


@dataclass(frozen=True)
class Append:
    pairs: list[tuple[bytes, bytes | None]]
    codec: Codec


@dataclass(frozen=True)
class Roll:
    pass


@dataclass(frozen=True)
class Clean:
    max_keys: int


@dataclass(frozen=True)
class Wait:
    milliseconds: int


@dataclass(frozen=True)
class Reopen:
    clean: bool


appends = st.builds(
    Append, st.lists(st.tuples(keys, tombstones_or_values), min_size=1, max_size=6), st.sampled_from(Codec)
)
steps = st.lists(
    st.one_of(
        appends,
        appends,
        st.builds(Roll),
        st.builds(Clean, st.integers(1, 10)),
        st.builds(Wait, st.integers(1, 2 * DELETE_RETENTION_MS)),
        st.builds(Reopen, st.booleans()),
    ),
    max_size=40,
)


class CompactionInPlace:
    """Stands in for the compaction process; starting hundreds of those takes too long."""

    def __init__(self, job: Job) -> None:
        self._compaction = Compaction(job)

    @property
    def done(self) -> Pass:
        return self._compaction.done

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        pass

    async def replacements(self) -> AsyncIterator[Replacement]:
        for replacement in self._compaction.run():
            yield replacement


@dataclass
class Story:
    """A log and, beside it, everything that was ever written to it."""

    directory: Path
    clock: ManualClock = field(default_factory=ManualClock)
    written: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.config = LogConfig(
            cleanup_policy=("compact",),
            segment_bytes=2000,
            index_interval_bytes=100,
            delete_retention_ms=DELETE_RETENTION_MS,
            min_cleanable_dirty_ratio=0,
            max_compaction_lag_ms=DELETE_RETENTION_MS // 2,
        )
        self.log = self.open(clean=True)
        self.cleaner = self.new_cleaner()

    def open(self, *, clean: bool) -> Log:
        return Log.open(self.directory / "t-0", self.config, clock=self.clock, disk=Disk(), clean=clean)

    def new_cleaner(self) -> Cleaner:
        async def run_in_thread(work: object) -> object:
            assert callable(work)
            return work()

        def remove(files: list[Path], _: int) -> None:
            for path in files:
                path.unlink()

        return Cleaner(
            lambda: [self.log],
            BrokerConfig(),
            clock=self.clock,
            timers=ManualTimers(self.clock),
            disk=Disk(),
            run_in_thread=run_in_thread,
            remove_later=remove,
        )

    async def play(self, step: object) -> None:
        match step:
            case Append(pairs, codec):
                self.append(pairs, codec)
            case Roll():
                self.roll()
            case Wait(milliseconds):
                self.clock.advance(milliseconds)
            case Clean(max_keys):
                with patch.object(cleaner_module, "KEY_COST_BYTES", 128 * 1024 * 1024 // max_keys):
                    await self.cleaner.clean_due_logs()
            case Reopen(clean):
                if clean:
                    self.log.close()
                else:
                    self.log.abandon()
                self.log = self.open(clean=clean)
                self.cleaner = self.new_cleaner()

    def roll(self) -> None:
        if self.log.segments[-1].size:
            self.log.roll()

    def append(self, pairs: list[tuple[bytes, bytes | None]], codec: Codec) -> None:
        now_ms, base_offset = self.clock.now_ms(), self.log.log_end_offset
        records = [Record(number, now_ms + number, *pair) for number, pair in enumerate(pairs)]
        self.log.append(memoryview(build_batch(records, codec=codec)), 0)
        self.written += [record._replace(offset=base_offset + record.offset) for record in records]

    def read(self) -> list[Record]:
        records: list[Record] = []
        offset = 0
        while (piece := self.log.read(offset, 500, min_one_batch=True)) is not None:
            for header, batch in iterate_batches(piece.read()):
                records += iterate_records(batch)
                offset = header.next_offset
        return records

    def check(self) -> None:
        read = self.read()
        offsets = [record.offset for record in read]
        assert offsets == sorted(set(offsets))
        assert all(record == self.written[record.offset] for record in read)
        assert self.log.log_end_offset == len(self.written)
        assert _state_after(read) == _state_after(self.written)
        last = {record.key: record for record in self.written}
        now_ms = self.clock.now_ms()
        for record in last.values():
            if record.value is not None or now_ms - record.timestamp < DELETE_RETENTION_MS:
                assert record.offset in offsets


def _state_after(records: list[Record]) -> dict[bytes | None, bytes]:
    state: dict[bytes | None, bytes] = {}
    for record in records:
        if record.value is None:
            state.pop(record.key, None)
        else:
            state[record.key] = record.value
    return state


async def _play(directory: Path, story: list[object]) -> None:
    told = Story(directory)
    for step in story:
        await told.play(step)
        told.check()
    told.roll()
    await told.play(Clean(10))
    told.check()


@settings(max_examples=150, deadline=None)
@given(steps)
def test_a_compacted_log_agrees_with_a_dict(story: list[object]) -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        patch.object(cleaner_module, "CompactionProcess", CompactionInPlace),
    ):
        asyncio.run(_play(Path(directory), story))
