"""Workers as plain processes on this machine, for development and small services."""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from millrace.topologies.model.errors import TopologyError
from millrace.topologies.runtime.jobs import Job

logger = logging.getLogger(__name__)

WATCH_SECONDS = 0.05
FIRST_BACKOFF_SECONDS = 0.2
LONGEST_BACKOFF_SECONDS = 10.0
# A worker that lives this long has started well: its next failure is the first again.
HEALTHY_SECONDS = 10.0
# A worker that fails this often without ever living long cannot start.
MOST_FAILED_STARTS = 5
STOP_SECONDS = 30.0


class WorkerProcess:
    """One worker: started again, with back-off, when it fails."""

    def __init__(self, job: Job, number: int, log: Path | None = None) -> None:
        self._job = job
        self.number = number
        self.failures = 0
        self.last_error = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._next_start = 0.0
        self._directory = tempfile.TemporaryDirectory(prefix="millrace-worker-")
        self._errors = log or Path(self._directory.name) / "stderr"
        self._errors_before = 0
        """The size of the file before the worker began to write to it."""

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        self._started = time.monotonic()
        with self._errors.open("ab") as errors:
            self._errors_before = errors.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "millrace.topologies.runtime.jobs"],
                stdin=subprocess.PIPE,
                stderr=errors,
            )
        assert self._process.stdin is not None
        # The pipe stays open: its end tells the worker that this process has ended.
        self._process.stdin.write(self._job.to_json(self.number).encode() + b"\n")
        self._process.stdin.flush()

    def watch(self) -> None:
        """Start the worker again if it has ended; raises TopologyError if it cannot start at all."""
        now = time.monotonic()
        if self._process is None:
            if now >= self._next_start:
                self.start()
            return
        code = self._process.poll()
        if code is None:
            return
        self._close()
        self.last_error = self._errors.read_bytes()[self._errors_before :].decode(errors="replace").strip()
        self.failures = 1 if now - self._started > HEALTHY_SECONDS else self.failures + 1
        if self.failures >= MOST_FAILED_STARTS:
            raise TopologyError(
                f"worker {self.number} failed {self.failures} times in a row:\n{_last_lines(self.last_error)}"
            )
        backoff = min(FIRST_BACKOFF_SECONDS * 2 ** (self.failures - 1), LONGEST_BACKOFF_SECONDS)
        self._next_start = now + backoff
        logger.warning(
            "worker %d ended with %d; it starts again in %.1f s\n%s",
            self.number,
            code,
            backoff,
            _last_lines(self.last_error),
        )

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def wait(self) -> None:
        if self._process is not None:
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._close()
        self._directory.cleanup()

    def _close(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None


class Processes:
    """All workers of a topology."""

    def __init__(self, job: Job, log: Path | None = None) -> None:
        """`log`: a file for what the workers write to standard error."""
        self._job = job
        self.workers = [WorkerProcess(job, number, log) for number in range(len(job.placement))]
        self._progress = job.progress()
        self._interrupted = threading.Event()

    def run(self, *, once: bool = False) -> None:
        """Run until interrupted or, with `once`, until everything that was in the log is processed."""
        for worker in self.workers:
            worker.start()
        try:
            while not self._interrupted.is_set() and not (once and self._progress.is_done()):
                for worker in self.workers:
                    worker.watch()
                self._interrupted.wait(WATCH_SECONDS)
        finally:
            self.stop()

    @property
    def up(self) -> int:
        """The number of workers that run."""
        return sum(worker.pid is not None for worker in self.workers)

    def interrupt(self) -> None:
        """Let `run` end soon. Any thread may call it."""
        self._interrupted.set()

    def stop(self) -> None:
        for worker in self.workers:
            worker.stop()
        for worker in self.workers:
            worker.wait()
        self._progress.close()


def _last_lines(text: str, count: int = 15) -> str:
    return "\n".join(text.splitlines()[-count:])
