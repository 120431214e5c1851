"""Reads the records of batches for the broker: small batches on the loop, others in processes of their own.

Processes rather than threads: checking records is work for Python, and packing lz4 holds the interpreter's
lock too, so the loop would wait for either.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from typing import Any, NamedTuple

from millrace.errors import Error, KafkaError, error_of
from millrace.storage.append_rules import AppendRules
from millrace.storage.child_process import PYTHON, ChildProcess, ProcessEnded
from millrace.storage.inspection import (
    AcceptedBatch,
    Budget,
    FoundRecord,
    InvalidRecords,
    TooMuchWork,
    find_by_time,
    inspect,
)
from millrace.storage.inspection_worker import Check, Search, Task, to_line
from millrace.timers import Timers
from millrace.wire.records import BatchHeader, read_header

logger = logging.getLogger(__name__)

COMMAND = (*PYTHON, "millrace.storage.inspection_worker")
# One request may take about a millisecond of the loop's time with the records of its batches.
UNITS_PER_REQUEST = 1000
PROCESSES = max(1, min(4, (os.cpu_count() or 1) // 2))
IDLE_MS = 60_000


class Postponed(Exception):
    """A batch takes too long to inspect on the loop: append it when the inspection is done."""

    def __init__(self, inspection: LateInspection) -> None:
        super().__init__("the batch is inspected in another process")
        self.inspection = inspection


class LateInspection:
    """The inspection of one batch in a process, and a copy of the batch, whose own memory is reused."""

    def __init__(self, inspector: Inspector, records: bytes, rules: AppendRules, now_ms: int) -> None:
        self.records = memoryview(records)
        self._inspector = inspector
        self._rules = rules
        self._task = inspector.start(records, Check(rules, now_ms), rules.partition)

    async def wait(self) -> None:
        """Return once the batch is inspected; raises KafkaError if it is refused."""
        await self._task

    def result(
        self, records: memoryview, header: BatchHeader, rules: AppendRules, now_ms: int
    ) -> AcceptedBatch:
        """The outcome of the inspection, which is made again if the topic's rules changed meanwhile."""
        if rules != self._rules:
            return self._inspector.inspect(records, header, rules, now_ms)
        batch = self._task.result().content
        return AcceptedBatch(read_header(batch), batch)


class _Answer(NamedTuple):
    """The response of a process; an accepted batch comes as it will be stored."""

    kind: str
    content: Any


class Inspector:
    """Owned by the broker loop; not thread-safe."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timers: Timers, max_waiting_bytes: int) -> None:
        self._loop = loop
        self._timers = timers
        self._max_waiting_bytes = max_waiting_bytes
        self._waiting_bytes = 0
        self._budget = Budget(UNITS_PER_REQUEST)
        self._turns = asyncio.Semaphore(PROCESSES)
        self._idle: list[ChildProcess] = []
        self._tasks: set[asyncio.Task[object]] = set()

    async def stop(self) -> None:
        """End the processes, and what they are doing."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._end_idle()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # On the loop, if it takes little time

    def begin_request(self) -> None:
        """Let the next request have its own share of the loop's time."""
        self._budget.units = UNITS_PER_REQUEST

    def inspect(
        self, records: memoryview, header: BatchHeader, rules: AppendRules, now_ms: int
    ) -> AcceptedBatch:
        """Inspect a batch now, or raise Postponed if that would take the loop's time away from others."""
        try:
            return inspect(records, header, rules, now_ms, self._budget)
        except TooMuchWork:
            # What follows in this request would be late in any case.
            self._budget.units = 0
        self._check_room(len(records), rules.partition)
        raise Postponed(LateInspection(self, bytes(records), rules, now_ms))

    async def find(
        self, batch: bytes, timestamp_ms: int, start_offset: int, partition: str
    ) -> FoundRecord | None:
        """The first record of a batch that is neither older than a timestamp nor before an offset."""
        with suppress(TooMuchWork):
            return find_by_time(batch, timestamp_ms, start_offset, Budget(UNITS_PER_REQUEST))
        self._check_room(len(batch), partition)
        answer = await self.start(batch, Search(timestamp_ms, start_offset), partition)
        return None if answer.content is None else FoundRecord(*answer.content)

    def _check_room(self, size: int, partition: str) -> None:
        if self._waiting_bytes and self._waiting_bytes + size > self._max_waiting_bytes:
            raise KafkaError(
                Error.REQUEST_TIMED_OUT, f"Too many batches wait for their records to be read; {partition}"
            )

    # In a process

    def start(self, batch: bytes, task: Task, partition: str) -> asyncio.Task[_Answer]:
        """Have a task done as soon as a process is free; refused batches raise KafkaError."""
        self._waiting_bytes += len(batch)
        waiting = self._loop.create_task(self._do_in_turn(batch, task, partition))
        self._tasks.add(waiting)
        waiting.add_done_callback(lambda _: self._forget(waiting, len(batch)))
        return waiting

    def _forget(self, task: asyncio.Task[_Answer], size: int) -> None:
        self._tasks.discard(task)
        self._waiting_bytes -= size

    async def _do_in_turn(self, batch: bytes, task: Task, partition: str) -> _Answer:
        try:
            async with self._turns:
                answer = await self._do(batch, task)
        except (ProcessEnded, OSError) as failure:
            logger.error("cannot read the records of a batch for %s: %s", partition, failure)
            raise KafkaError(
                Error.UNKNOWN_SERVER_ERROR, "the broker failed to read the records; see its log"
            ) from failure
        if answer.kind != "refused":
            return answer
        code, message, record_errors = answer.content
        if record_errors is None:
            raise KafkaError(error_of(code), message)
        raise InvalidRecords(error_of(code), message, [(number, text) for number, text in record_errors])

    async def _do(self, batch: bytes, task: Task) -> _Answer:
        while self._idle:
            # An idle process may have been killed since.
            with suppress(ProcessEnded):
                return await self._ask(self._idle.pop(), batch, task)
        return await self._ask(await ChildProcess.start(COMMAND), batch, task)

    async def _ask(self, process: ChildProcess, batch: bytes, task: Task) -> _Answer:
        try:
            await process.send(to_line(task, len(batch)), batch)
            kind, content = await process.answer()
            if kind == "accepted":
                content = await process.read(content) if content else batch
        except BaseException:
            await process.end()
            raise
        self._keep(process)
        return _Answer(kind, content)

    def _keep(self, process: ChildProcess) -> None:
        """Have a process ready for the next batch, and end it if none comes for a while."""
        self._idle.append(process)
        self._timers.schedule(self, IDLE_MS, self._end_idle)

    def _end_idle(self) -> None:
        self._timers.cancel(self)
        while self._idle:
            task = self._loop.create_task(self._idle.pop().end())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
