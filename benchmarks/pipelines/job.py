"""A job in processes of its own: times of its first read and its results, and its CPU time."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from benchmarks.pipelines.sentences import Results

JOBS = Path(__file__).with_name("rival_jobs")
LOOK_SECONDS = 0.05
# Longer than any library delays results.
QUIET_SECONDS = 8
STALLED_SECONDS = 300
END_SECONDS = 30


class Failed(Exception):
    """A job has died or makes no progress; the message says which."""


@dataclass(frozen=True, slots=True)
class Course:
    """Figures of a job: times in seconds since its start, CPU time from the first read to the last result."""

    first_read: float
    first_result: float
    last_result: float
    cpu_seconds: float


class Job:
    """Processes of one job, in a directory of their own."""

    def __init__(
        self, commands: Sequence[list[str]], directory: Path, environment: Mapping[str, str]
    ) -> None:
        self._directory = directory
        self._commands = commands
        self._environment = {**os.environ, **environment}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._started = 0.0

    def __enter__(self) -> Job:
        self._started = time.time()
        for number, command in enumerate(self._commands):
            with self._log(number).open("wb") as log:
                self._processes.append(self._start(command, log))
        return self

    def __exit__(self, *_: object) -> None:
        family = self._family()
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
            if not (self._directory / "done").exists():
                process.terminate()
        _, alive = psutil.wait_procs(family, END_SECONDS)
        for one in alive:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        for process in self._processes:
            process.wait()

    def watch(self, results: Results, expected: int) -> Course:
        """Wait until there are this many results, or until the job reports its end and no more arrive."""
        size, first_result, last_result = 0, 0.0, time.time()
        cpu_before = cpu_after = 0.0
        complete = False
        while not (complete and time.time() - last_result > QUIET_SECONDS):
            time.sleep(LOOK_SECONDS)
            if not cpu_before and (self._directory / "reading").exists():
                cpu_before = self._cpu_seconds()
            now, found = time.time(), results.size()
            if found > size:
                size, first_result, last_result = found, first_result or now, now
            done = (self._directory / "done").exists()
            if (done and not complete) or (size >= expected and now == last_result):
                complete, cpu_after = True, self._cpu_seconds()
            if not complete:
                self._check(now - max(last_result, self._started))
        first_read = (self._directory / "reading").stat().st_mtime
        return Course(
            first_read - self._started,
            first_result - self._started,
            last_result - self._started,
            cpu_after - cpu_before,
        )

    def _start(self, command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command, cwd=self._directory, env=self._environment, stdin=subprocess.PIPE, stdout=log, stderr=log
        )

    def _log(self, number: int) -> Path:
        return self._directory / f"{number}.log"

    def _check(self, quiet_seconds: float) -> None:
        for number, process in enumerate(self._processes):
            if process.poll() is not None:
                lines = self._log(number).read_text(errors="replace").strip().splitlines() or [""]
                raise Failed(f"ended with {process.returncode}: {lines[-1]}")
        if quiet_seconds > STALLED_SECONDS:
            raise Failed(f"no result within {STALLED_SECONDS} s")

    def _family(self) -> list[psutil.Process]:
        family = []
        for process in self._processes:
            with suppress(psutil.NoSuchProcess):
                one = psutil.Process(process.pid)
                family += [one, *one.children(recursive=True)]
        return family

    def _cpu_seconds(self) -> float:
        """CPU time of all processes, including those that have ended."""
        total = 0.0
        for one in self._family():
            with suppress(psutil.NoSuchProcess):
                total += sum(one.cpu_times()[:4])
        return total
