"""The compaction process: its conversation with the broker, and how it dies."""

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, Self

import psutil
import pytest
import uvloop

from millrace.storage.compaction import Job, Source
from millrace.storage.compaction_process import CompactionProcess
from millrace.wire.records import Record, build_batch

NewLoop = Callable[[], asyncio.AbstractEventLoop]


def make_job(directory: Path, *, segments: int = 3, value_bytes: int = 10) -> Job:
    """Segments of ten records under two keys each, too large to be merged."""
    sources = []
    for base in range(0, segments * 10, 10):
        records = [Record(base + delta, 1, b"%d" % (delta % 2), b"x" * value_bytes) for delta in range(10)]
        path = directory / f"{base:020d}.log"
        path.write_bytes(build_batch(records))
        sources.append(Source(base, path.stat().st_size, 0, 0))
    return Job(
        directory=str(directory),
        segments=sources,
        first_dirty_offset=0,
        first_uncleanable_offset=segments * 10,
        segment_bytes=1,
        segment_index_bytes=1 << 20,
        index_interval_bytes=4096,
        delete_retention_ms=0,
        max_keys=100,
        max_bytes_per_second=1e300,
        now_ms=0,
        producers=[],
    )


class Process:
    """A compaction process as the broker sees it."""

    def __init__(self, job: Job, *launcher: str) -> None:
        command = [*launcher, sys.executable, "-m", "millrace.storage.compaction"]
        pipe = subprocess.PIPE
        self.popen = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        self.send(job.to_json().encode() + b"\n")

    def send(self, content: bytes) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(content)
        self.popen.stdin.flush()

    def answer(self) -> Any:
        assert self.popen.stdout is not None
        return json.loads(self.popen.stdout.readline())

    def wait(self) -> int:
        return self.popen.wait(timeout=10)

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *exception: object) -> None:
        self.popen.kill()
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            assert pipe is not None
            pipe.close()


def files_in(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_replacements_come_one_by_one_and_then_the_summary(tmp_path: Path) -> None:
    with Process(make_job(tmp_path)) as process:
        for base in (0, 10, 20):
            assert process.answer()["replacement"]["replaces"] == [base]
            assert sorted(tmp_path.glob("*.cleaned"))[-1].name.startswith(f"{base:020d}")
            process.send(b"\n")
        done = process.answer()["done"]
        assert process.wait() == 0
    assert (done["end_offset"], done["records_read"], done["records_kept"]) == (30, 30, 2)


def test_it_waits_to_be_told_before_it_writes_the_next_segment(tmp_path: Path) -> None:
    with Process(make_job(tmp_path)) as process:
        process.answer()
        with pytest.raises(subprocess.TimeoutExpired):
            process.popen.wait(timeout=0.3)
        assert not list(tmp_path.glob(f"{10:020d}*.cleaned"))


def test_it_ends_when_the_broker_is_gone(tmp_path: Path) -> None:
    with Process(make_job(tmp_path)) as process:
        process.answer()
        assert process.popen.stdin is not None
        process.popen.stdin.close()
        assert process.wait() == 1


def test_killed_it_leaves_the_segments_untouched_and_the_next_pass_tidies_up(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    before = files_in(tmp_path)
    with Process(job) as process:
        process.answer()
        process.popen.send_signal(signal.SIGKILL)
        process.wait()
    assert list(tmp_path.glob("*.cleaned"))
    assert {name: content for name, content in files_in(tmp_path).items() if name in before} == before
    with Process(job) as process:
        assert process.answer()["replacement"]["replaces"] == [0]


def test_a_full_disk_is_reported_and_leaves_no_files(tmp_path: Path) -> None:
    job = make_job(tmp_path, segments=1, value_bytes=10_000)
    before = files_in(tmp_path)
    with Process(job, "sh", "-c", 'ulimit -f 4 && exec "$0" "$@"') as process:
        assert "too large" in process.answer()["disk"]
        process.wait()
    assert files_in(tmp_path) == before


def test_a_corrupt_batch_is_reported_with_its_file(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    path = tmp_path / f"{10:020d}.log"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    with Process(job) as process:
        assert f"{path}: Record is corrupt" in process.answer()["corrupt"]
        process.wait()
    assert not list(tmp_path.glob("*.cleaned"))


def test_a_vanished_segment_is_told_apart_from_a_failing_disk(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    (tmp_path / f"{20:020d}.log").unlink()
    with Process(job) as process:
        assert "gone" in process.answer()
        process.wait()


def test_it_gives_way_to_the_broker(tmp_path: Path) -> None:
    with Process(make_job(tmp_path)) as process:
        process.answer()
        assert os.getpriority(os.PRIO_PROCESS, process.popen.pid) > os.getpriority(os.PRIO_PROCESS, 0)


def test_it_starts_without_the_brokers_machinery() -> None:
    script = "import sys, millrace.storage.compaction; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"uvloop", "asyncio", "click", "rich", "confluent_kafka"} & set(loaded.stdout.split())


@pytest.fixture(scope="module")
def quiet_process() -> Iterator[Executor]:
    """A process in which nothing else opens files; brokers and clients of other tests live in this one."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        yield process


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
class TestCancelled:
    """Whatever it was about to do, no process stays behind and no pipe stays open."""

    @pytest.mark.parametrize("steps", range(8))
    def test_while_it_starts(
        self, quiet_process: Executor, tmp_path: Path, new_loop: NewLoop, steps: int
    ) -> None:
        before, after = quiet_process.submit(run, new_loop, cancel_while_it_starts, tmp_path, steps).result()
        assert before == after

    def test_when_it_is_done(self, quiet_process: Executor, tmp_path: Path, new_loop: NewLoop) -> None:
        before, after = quiet_process.submit(run, new_loop, cancel_when_it_is_done, tmp_path).result()
        assert before == after


async def cancel_while_it_starts(directory: Path, steps: int) -> None:
    compacting = asyncio.ensure_future(compact(make_job(directory)))
    for _ in range(steps):
        await asyncio.sleep(0)
    compacting.cancel()
    await asyncio.gather(compacting, return_exceptions=True)


async def cancel_when_it_is_done(directory: Path) -> None:
    compacting = asyncio.ensure_future(
        compact(make_job(directory), lambda: asyncio.get_running_loop().call_soon(compacting.cancel))
    )
    await asyncio.gather(compacting, return_exceptions=True)
    assert compacting.cancelled()


async def compact(job: Job, done: Callable[[], object] = lambda: None) -> None:
    async with CompactionProcess(job) as process:
        async for _ in process.replacements():
            pass
        done()


class Held(NamedTuple):
    """Children and open files of a process."""

    children: list[int]
    open_files: int

    @classmethod
    def now(cls) -> Self:
        process = psutil.Process()
        return cls([child.pid for child in process.children()], process.num_fds())


def run(
    new_loop: NewLoop, work: Callable[..., Coroutine[Any, Any, None]], *arguments: object
) -> tuple[Held, Held]:
    """Do the work; returns what this process held before and after."""
    # The first loop of a process may keep files open for those to come.
    new_loop().close()
    # What the work before left open is closed now and not meanwhile.
    gc.collect()
    before = Held.now()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(work(*arguments))
    return before, Held.now()
