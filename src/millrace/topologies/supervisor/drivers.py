"""Driver processes: started, found again, and watched."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from millrace.topologies.supervisor.board import Board
from millrace.topologies.supervisor.driver import FAILED, Task
from millrace.topologies.supervisor.identity import is_running, process_started
from millrace.topologies.supervisor.records import Job, Status

logger = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS = 1.0
LONGEST_BACKOFF_SECONDS = 60.0
# A driver that lives this long has started well: its next failure is the first again.
HEALTHY_SECONDS = 60.0
MOST_FAILED_STARTS = 5
# A driver on another machine that is silent for so long is taken for dead.
SILENCE_SECONDS = 15.0
STOP_SECONDS = 45.0
LOG_CHARACTERS = 2000


class _Attempts:
    """The starts of one generation of a topology."""

    def __init__(self, job: Job) -> None:
        self.of = (job.id, job.generation)
        self.failures = 0
        self.next_start = 0.0
        self.process: subprocess.Popen[bytes] | None = None
        self.started = 0.0


class Drivers:
    """The drivers of all topologies, as the leading supervisor sees them. One thread may use it."""

    def __init__(
        self, board: Board, bootstrap: str, data_dir: Path, key_file: Path, client: Mapping[str, str]
    ) -> None:
        self._board = board
        self._bootstrap = bootstrap
        self._data_dir = data_dir
        self._key_file = key_file
        self._client = client
        self._host = socket.gethostname()
        self._attempts: dict[str, _Attempts] = {}

    def watch(self) -> None:
        """Start what should run and does not."""
        for name in self._attempts.keys() - self._board.jobs.keys():
            attempts = self._attempts[name]
            # It may still be about to end by itself.
            if attempts.process is None or attempts.process.poll() is not None:
                del self._attempts[name]
        for job in list(self._board.jobs.values()):
            self._watch(job)

    def _watch(self, job: Job) -> None:
        attempts = self._attempts.setdefault(job.name, _Attempts(job))
        if attempts.of != (job.id, job.generation):
            running = attempts.process
            attempts = self._attempts[job.name] = _Attempts(job)
            attempts.process, attempts.started = running, time.monotonic()
        status = self._board.status(job)
        if attempts.process is not None:
            code = attempts.process.poll()
            if code is None:
                return
            attempts.process = None
            self._note_end(job, attempts, code)
            return
        if status is not None and self._is_alive(status):
            return
        if job.wanted == "killed":
            self._board.remove(job)
        elif not _has_failed(job, status) and time.monotonic() >= attempts.next_start:
            self._start(job, attempts)

    def _is_alive(self, status: Status) -> bool:
        """Whether the driver that wrote this status still runs."""
        if status.state == "FAILED":
            return False
        if status.host == self._host:
            return is_running(status.pid, status.process_started)
        return time.time() - status.time_ms / 1000 < SILENCE_SECONDS

    def _note_end(self, job: Job, attempts: _Attempts, code: int) -> None:
        if code in (0, FAILED):
            # It was told to end, or has said itself why it cannot run.
            return
        lived = time.monotonic() - attempts.started
        attempts.failures = 1 if lived > HEALTHY_SECONDS else attempts.failures + 1
        backoff = min(FIRST_BACKOFF_SECONDS * 2.0 ** (attempts.failures - 1), LONGEST_BACKOFF_SECONDS)
        attempts.next_start = time.monotonic() + backoff
        logger.warning(
            "the driver of %s ended with %d; it starts again in %.0f s (%s)",
            job.name,
            code,
            backoff,
            self.log_of(job.name),
        )
        if attempts.failures >= MOST_FAILED_STARTS and code > 0:
            self._give_up(job, attempts)

    def _give_up(self, job: Job, attempts: _Attempts) -> None:
        last_lines = _tail(self.log_of(job.name))
        now = round(time.time() * 1000)
        self._board.put_status(
            job.name,
            Status(
                id=job.id,
                state="FAILED",
                generation=job.generation,
                time_ms=now,
                started_ms=now,
                host=self._host,
                pid=0,
                process_started="",
                error=f"the driver failed {attempts.failures} times in a row:\n{last_lines}",
                log=str(self.log_of(job.name)),
            ),
        )

    def log_of(self, name: str) -> Path:
        """The output of a topology's driver and workers."""
        # A file, not a directory: Kafka takes every directory here for a partition.
        return self._data_dir / f"topology-{name}.log"

    def _start(self, job: Job, attempts: _Attempts) -> None:
        log = self.log_of(job.name)
        task = Task(job.name, self._bootstrap, str(self._key_file), str(log), dict(self._client))
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "millrace.topologies.supervisor.driver"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                # It outlives this process, and Ctrl-C does not reach it.
                start_new_session=True,
            )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(msgspec.json.encode(task) + b"\n")
            process.stdin.close()
        attempts.process, attempts.started = process, time.monotonic()
        logger.info("driver of %s started, pid %d", job.name, process.pid)

    def stop(self) -> None:
        """Stop the drivers of this machine; their topologies stay submitted."""
        running = {
            status.pid: status.process_started
            for status in self._board.statuses.values()
            if status.host == self._host and self._is_alive(status)
        }
        for attempts in self._attempts.values():
            if attempts.process is not None and attempts.process.poll() is None:
                running.setdefault(attempts.process.pid, process_started(attempts.process.pid) or "")
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while any(is_running(pid, started) for pid, started in running.items()):
            if time.monotonic() > deadline:
                logger.warning("drivers that do not stop are left: %s", list(running))
                return
            for attempts in self._attempts.values():
                if attempts.process is not None:
                    attempts.process.poll()
            time.sleep(0.05)


def _has_failed(job: Job, status: Status | None) -> bool:
    return status is not None and status.state == "FAILED" and status.generation == job.generation


def _tail(path: Path) -> str:
    try:
        return path.read_text(errors="replace")[-LOG_CHARACTERS:].strip()
    except OSError:
        return ""
