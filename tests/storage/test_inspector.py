"""The inspector: small batches are inspected at once, others in a process, by the same rules."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator

import psutil
import pytest

from millrace.config import LogConfig
from millrace.errors import Error, KafkaError
from millrace.storage import inspector as inspector_module
from millrace.storage.append_rules import AppendRules
from millrace.storage.inspection import AcceptedBatch, InvalidRecords, inspect
from millrace.storage.inspection_worker import Check, Search, from_line, to_line
from millrace.storage.inspector import Inspector, LateInspection, Postponed
from millrace.testing import ManualClock
from millrace.testing.timers import ManualTimers
from millrace.wire.compression import Codec
from millrace.wire.records import encode_record, read_header

from .. import crafted

NOW_MS = 1_700_000_000_000
SECONDS = 60
WORKER = "millrace.storage.inspection_worker"
COMPACTED = AppendRules.of(LogConfig(cleanup_policy=("compact",)), "table-0")
GZIPPED = AppendRules.of(LogConfig(compression_type="gzip"), "packed-0")


def batch(count: int, *, codec: Codec = Codec.NONE, key: bytes | None = b"key", value: bytes = b"v") -> bytes:
    records = [encode_record(number, 0, key, value) for number in range(count)]
    return crafted.batch(records, count=count, timestamp=NOW_MS, codec=codec)


@pytest.fixture
def max_waiting_bytes() -> int:
    return 1 << 28


@pytest.fixture
def timers() -> ManualTimers:
    return ManualTimers(ManualClock())


@pytest.fixture
async def inspector(timers: ManualTimers, max_waiting_bytes: int) -> AsyncIterator[Inspector]:
    inspector = Inspector(asyncio.get_running_loop(), timers, max_waiting_bytes)
    yield inspector
    await inspector.stop()
    assert not workers()


def workers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if WORKER in child.cmdline()]


def now(inspector: Inspector, content: bytes, rules: AppendRules = COMPACTED) -> AcceptedBatch:
    return inspector.inspect(memoryview(content), read_header(content), rules, NOW_MS)


def late(inspector: Inspector, content: bytes, rules: AppendRules = COMPACTED) -> LateInspection:
    with pytest.raises(Postponed) as raised:
        now(inspector, content, rules)
    return raised.value.inspection


async def finished(inspection: LateInspection, rules: AppendRules = COMPACTED) -> AcceptedBatch:
    async with asyncio.timeout(SECONDS):
        await inspection.wait()
    records = inspection.records
    return inspection.result(records, read_header(records), rules, NOW_MS)


@pytest.mark.parametrize("codec", list(Codec))
async def test_a_small_batch_is_inspected_at_once(inspector: Inspector, codec: Codec) -> None:
    content = batch(100, codec=codec)
    assert bytes(now(inspector, content).buffer) == content
    assert now(inspector, batch(2, codec=codec), GZIPPED).header.codec is Codec.GZIP
    assert not workers()


LARGE = {
    "many records": (batch(5000), COMPACTED),
    "many records, compressed": (batch(5000, codec=Codec.ZSTD), COMPACTED),
    "a record that unpacks to much": (batch(1, value=bytes(10 << 20), codec=Codec.ZSTD), COMPACTED),
    "a record of many headers": (
        crafted.batch([encode_record(0, 0, b"key", b"", (("", None),) * 5000)], timestamp=NOW_MS),
        COMPACTED,
    ),
    "much to pack": (batch(1, value=os.urandom(50_000)), GZIPPED),
    "much to unpack and to pack": (batch(20, value=bytes(10_000), codec=Codec.LZ4), GZIPPED),
    "a wrong largest timestamp": (
        crafted.batch(
            [encode_record(number, 0, b"key", b"") for number in range(5000)],
            count=5000,
            timestamp=NOW_MS,
            max_timestamp=5,
        ),
        COMPACTED,
    ),
}


@pytest.mark.parametrize("case", LARGE)
async def test_a_large_batch_is_inspected_in_a_process_and_alike(inspector: Inspector, case: str) -> None:
    content, rules = LARGE[case]
    accepted = await finished(late(inspector, content, rules), rules)
    expected = inspect(content, read_header(content), rules, NOW_MS)
    assert (accepted.header, bytes(accepted.buffer)) == (expected.header, bytes(expected.buffer))


REFUSED = {
    "keys are missing": batch(5000, key=None),
    "timestamps are out of bounds": crafted.batch(
        [encode_record(number, 10**12, b"key", b"") for number in range(5000)],
        count=5000,
        timestamp=NOW_MS,
    ),
    "offsets are wrong": crafted.batch([encode_record(0, 0, b"key", b"")] * 5000, count=5000),
    "it does not unpack": crafted.batch([b"no zstd"], count=5000),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_large_batch_is_refused_as_a_small_one_is(inspector: Inspector, case: str) -> None:
    content = REFUSED[case]
    with pytest.raises(KafkaError) as expected:
        inspect(content, read_header(content), COMPACTED, NOW_MS)
    with pytest.raises(KafkaError) as raised:
        await finished(late(inspector, content))
    assert type(raised.value) is type(expected.value)
    assert (raised.value.error, raised.value.message) == (expected.value.error, expected.value.message)
    if isinstance(expected.value, InvalidRecords):
        assert raised.value.record_errors == expected.value.record_errors


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("count", [100, 5000])
async def test_a_record_is_found_by_time_wherever_that_is_done(
    inspector: Inspector, count: int, codec: Codec
) -> None:
    records = [crafted.record(number, timestamp_delta=number // 10) for number in range(count)]
    content = crafted.batch(records, count=count, timestamp=NOW_MS, base_offset=1000, codec=codec)
    assert await inspector.find(content, 0, 0, "table-0") == (1000, NOW_MS, -1)
    assert await inspector.find(content, NOW_MS + 5, 0, "table-0") == (1050, NOW_MS + 5, -1)
    assert await inspector.find(content, 0, 1055, "table-0") == (1055, NOW_MS + 5, -1)
    assert await inspector.find(content, NOW_MS + count, 0, "table-0") is None
    assert bool(workers()) == (count == 5000)


async def test_a_broken_batch_is_corrupt_wherever_it_is_searched(inspector: Inspector) -> None:
    for count in (1, 5000):
        broken = crafted.batch([b"no records"], count=count)
        with pytest.raises(KafkaError) as raised:
            await inspector.find(broken, 0, 0, "table-0")
        assert raised.value.error is Error.CORRUPT_MESSAGE


async def test_the_batches_of_one_request_share_the_loops_time(inspector: Inspector) -> None:
    small = batch(100)
    inspector.begin_request()
    for _ in range(9):
        now(inspector, small)
    inspection = late(inspector, small)
    # Even less would keep its order in the request now.
    another = late(inspector, batch(1))
    inspector.begin_request()
    now(inspector, small)
    await finished(inspection)
    await finished(another)


async def test_a_batch_is_copied_because_its_memory_is_used_again(inspector: Inspector) -> None:
    content = batch(5000)
    memory = bytearray(content)
    with pytest.raises(Postponed) as raised:
        inspector.inspect(memoryview(memory), read_header(memory), COMPACTED, NOW_MS)
    memory[:] = bytes(len(memory))
    accepted = await finished(raised.value.inspection)
    assert bytes(accepted.buffer) == content


async def test_rules_that_changed_meanwhile_are_applied(inspector: Inspector) -> None:
    content = batch(5000)
    inspection = late(inspector, content)
    with pytest.raises(Postponed) as raised:
        await finished(inspection, GZIPPED)
    accepted = await finished(raised.value.inspection, GZIPPED)
    assert accepted.header.codec is Codec.GZIP


@pytest.mark.parametrize("max_waiting_bytes", [2 * len(batch(5000))])
async def test_no_more_bytes_wait_than_allowed(inspector: Inspector) -> None:
    content = batch(5000)
    inspections = [late(inspector, content), late(inspector, content)]
    with pytest.raises(KafkaError) as raised:
        now(inspector, content)
    assert raised.value.error is Error.REQUEST_TIMED_OUT
    for inspection in inspections:
        await finished(inspection)
    await finished(late(inspector, content))


@pytest.mark.parametrize("max_waiting_bytes", [1])
async def test_a_batch_larger_than_allowed_waits_alone(inspector: Inspector) -> None:
    await finished(late(inspector, batch(5000)))


async def test_a_process_serves_one_batch_after_the_other(inspector: Inspector) -> None:
    inspections = [late(inspector, batch(2000 + number)) for number in range(10)]
    counts = [(await finished(inspection)).header.record_count for inspection in inspections]
    assert counts == list(range(2000, 2010))
    assert len(workers()) <= inspector_module.PROCESSES


async def test_a_process_that_dies_costs_its_batch_only(
    inspector: Inspector, caplog: pytest.LogCaptureFixture
) -> None:
    doomed = late(inspector, batch(1_000_000, codec=Codec.ZSTD))
    async with asyncio.timeout(SECONDS):
        while not workers():
            await asyncio.sleep(0.01)
    workers()[0].kill()
    with pytest.raises(KafkaError) as raised:
        await finished(doomed)
    assert raised.value.error is Error.UNKNOWN_SERVER_ERROR
    assert "table-0" in caplog.text
    await finished(late(inspector, batch(5000)))


async def test_a_process_that_died_while_idle_is_replaced(inspector: Inspector) -> None:
    await finished(late(inspector, batch(5000)))
    (idle,) = workers()
    idle.kill()
    await finished(late(inspector, batch(5000)))


async def test_an_idle_process_ends(inspector: Inspector, timers: ManualTimers) -> None:
    await finished(late(inspector, batch(5000)))
    timers.advance(inspector_module.IDLE_MS - 1)
    assert workers()
    timers.advance(1)
    async with asyncio.timeout(SECONDS):
        while workers():
            await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_stopping_ends_what_is_under_way(timers: ManualTimers) -> None:
    inspector = Inspector(asyncio.get_running_loop(), timers, 1 << 28)
    inspections = [late(inspector, batch(1_000_000, codec=Codec.ZSTD)) for _ in range(2)]
    async with asyncio.timeout(SECONDS):
        while not workers():
            await asyncio.sleep(0.01)
        await inspector.stop()
    assert not workers()
    for inspection in inspections:
        with pytest.raises(asyncio.CancelledError):
            await inspection.wait()


def test_the_process_ends_with_its_input() -> None:
    content = batch(3)
    line = to_line(Check(COMPACTED, NOW_MS), len(content))
    command = [sys.executable, "-m", WORKER]
    worker = subprocess.run(
        command, input=2 * (line + content), capture_output=True, check=True, timeout=SECONDS
    )
    assert worker.stdout == 2 * b'{"accepted": 0}\n'


def test_the_process_starts_without_the_brokers_machinery() -> None:
    script = "import sys, millrace.storage.inspection_worker; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    unwanted = {"uvloop", "asyncio", "click", "rich", "confluent_kafka", "millrace.config"}
    assert not unwanted & set(loaded.stdout.split())


@pytest.mark.parametrize("task", [Check(COMPACTED, NOW_MS), Check(GZIPPED, NOW_MS), Search(5, 7)], ids=str)
def test_a_task_is_read_as_it_was_written(task: Check | Search) -> None:
    assert from_line(to_line(task, 99)) == (task, 99)
