"""The driver process of one submitted topology.

It brings the topology into the state that its job asks for, and reports how that went. When the supervisor
dies, the topology goes on, and the next supervisor finds this process by its status.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import KafkaException

from millrace.services.secret_file import read_secret
from millrace.topologies.model.errors import TopologyError
from millrace.topologies.running import Workers, new_workers, prepare
from millrace.topologies.runtime import jobs
from millrace.topologies.runtime.control import topology_key
from millrace.topologies.runtime.control_writer import ControlWriter, Superseded
from millrace.topologies.supervisor.board import Board, LogUnavailable
from millrace.topologies.supervisor.code import fetch, unpack
from millrace.topologies.supervisor.identity import process_started
from millrace.topologies.supervisor.records import STATUSES, Job, State, Status, encode

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 2.0
POLL_SECONDS = 0.2
# Workers that ran this long have started: what fails afterwards is worth another try.
HEALTHY_SECONDS = 10.0

FAILED = 3
"""Exit code: another try would fail in the same way."""
SUPERSEDED = 4
UNAVAILABLE = 75
"""Exit code: the log cannot be reached."""


class Task(msgspec.Struct, frozen=True):
    """The task of a driver process, which it reads from standard input."""

    name: str
    bootstrap: str
    key_file: str
    log: str
    client: dict[str, str] = {}


class Driver:
    """Runs one topology. Owned by the main thread of its process."""

    def __init__(self, task: Task) -> None:
        signing_key = bytes.fromhex(read_secret(Path(task.key_file)))
        self._task = task
        self._signing_key = signing_key
        self._board = Board(task.bootstrap, signing_key, task.client)
        key = topology_key(signing_key, task.name)
        self._writer = ControlWriter(task.name, key, task.bootstrap, task.client)
        self._started_ms = _now_ms()
        self._reported = 0.0
        self._placement: list[list[int]] = []
        self._last: tuple[Any, ...] | None = None
        self.stopping = threading.Event()

    def run(self) -> None:
        """Run until the topology is killed, or this process is told to stop."""
        self._board.catch_up()
        job = self._job()
        if job is None:
            return
        self._writer.take_over()
        while job is not None and not self.stopping.is_set():
            self._report(job, "STARTING")
            job = self._run_or_fail(job)

    def _run_or_fail(self, job: Job) -> Job | None:
        try:
            return self._run_generation(job)
        except (Superseded, LogUnavailable):
            raise
        except TopologyError as error:
            self._fail(job, str(error))
            raise

    def _job(self) -> Job | None:
        return self._board.jobs.get(self._task.name)

    def _run_generation(self, job: Job) -> Job | None:
        """Run the workers of a job until it needs others; returns the job then, None if it was killed."""
        directory = Path(tempfile.mkdtemp(prefix=f"millrace-{job.name}-"))
        try:
            prepared = self._prepare(job, directory)
            plan = prepared.plan()
            self._placement = [list(tasks) for tasks in prepared.placement]
            active = job.wanted == "active"
            incarnation = self._writer.begin(
                plan, len(prepared.placement), active=active, debug=dict(job.debug)
            )
            workers = new_workers(
                replace(prepared, incarnation=incarnation),
                master=job.master,
                spark=job.spark,
                log=Path(self._task.log),
            )
            logger.info("%s: %d workers start, generation %d", job.id, len(self._placement), job.generation)
            running = _Running(workers)
            running.start()
            try:
                return self._watch(job, running)
            finally:
                self._stop(running)
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _prepare(self, job: Job, directory: Path) -> jobs.Job:
        config = {**self._task.client, "bootstrap.servers": self._task.bootstrap}
        packed, code = fetch(job, config), directory / "code"
        archive = directory / "code.zip"
        archive.write_bytes(packed)
        unpack(packed, code)
        # A topology opens the files that were shipped with it by their names.
        os.chdir(code)
        prepared = prepare(
            code / job.file,
            self._task.bootstrap,
            class_name=job.class_name,
            name=job.name,
            config=job.config,
            client=self._task.client,
            signing_key=self._signing_key,
            id=job.id,
            executors=job.executors,
        )
        return replace(prepared, archive=str(archive))

    def _watch(self, job: Job, running: _Running) -> Job | None:
        """Follow the job while its workers run."""
        generation = job.generation
        while not self.stopping.is_set():
            self._board.refresh(POLL_SECONDS)
            found = self._job()
            if found is None or found.id != job.id:
                return found
            job = found
            if job.wanted == "killed":
                self._kill(job, running)
                return None
            if job.generation != generation:
                self._report(job, "REBALANCING", running)
                return job
            running.check()
            self._writer.change(active=job.wanted == "active", debug=dict(job.debug))
            self._report(job, "ACTIVE" if job.wanted == "active" else "INACTIVE", running)
        return job

    def _kill(self, job: Job, running: _Running) -> None:
        """Stop the sources, let the tuples on their way arrive, then end."""
        self._writer.change(active=False)
        deadline = time.monotonic() + job.wait_seconds
        while time.monotonic() < deadline and not self.stopping.is_set():
            self._report(job, "KILLED", running)
            time.sleep(min(POLL_SECONDS, max(deadline - time.monotonic(), 0)))
        self._stop(running)
        self._board.remove(job)

    def _stop(self, running: _Running) -> None:
        if running.is_alive():
            try:
                self._writer.change(stopping=True)
            except (Superseded, KafkaException) as error:
                logger.warning("the workers are stopped without orders: %s", error)
            running.workers.interrupt()
        running.join()

    # Status

    def _report(
        self, job: Job, state: State, running: _Running | None = None, error: str | None = None
    ) -> None:
        """Write the status: at once if it has changed, else as a sign of life."""
        up = running.workers.up if running is not None else 0
        if state == "ACTIVE" and up < len(self._placement):
            state = "STARTING"
        facts = (job.generation, state, up, error)
        if facts == self._last and time.monotonic() - self._reported < HEARTBEAT_SECONDS:
            return
        self._last, self._reported = facts, time.monotonic()
        status = Status(
            id=job.id,
            state=state,
            generation=job.generation,
            time_ms=_now_ms(),
            started_ms=self._started_ms,
            host=socket.gethostname(),
            pid=os.getpid(),
            process_started=process_started(os.getpid()) or "",
            workers=len(self._placement),
            workers_up=up,
            placement=self._placement,
            error=error,
            log=self._task.log,
        )
        try:
            self._writer.announce(STATUSES, job.name, encode(self._signing_key, status))
        except KafkaException as reason:
            # The workers wait for the log too; the next report may get through.
            logger.warning("the status cannot be written: %s", reason)

    def _fail(self, job: Job, error: str) -> None:
        logger.error("%s cannot run: %s", job.name, error)
        self._report(job, "FAILED", error=error)


class _Running(threading.Thread):
    """The workers of one generation, run beside the main thread."""

    def __init__(self, workers: Workers) -> None:
        super().__init__(name="workers", daemon=True)
        self.workers = workers
        self._failure: Exception | None = None
        self._began = time.monotonic()

    def run(self) -> None:
        try:
            self.workers.run()
        except Exception as error:
            self._failure = error

    def check(self) -> None:
        """Raise TopologyError if the workers cannot start, and RuntimeError if they ended later."""
        if self.is_alive():
            return
        reason = str(self._failure) if self._failure is not None else "the workers have ended by themselves"
        if time.monotonic() - self._began < HEALTHY_SECONDS or isinstance(self._failure, TopologyError):
            raise TopologyError(reason) from self._failure
        raise RuntimeError(reason) from self._failure


def _now_ms() -> int:
    return round(time.time() * 1000)


def main() -> int:
    """Run the driver whose task stands on standard input; the exit code says whether to try again."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    task = msgspec.json.decode(sys.stdin.readline(), type=Task)
    try:
        driver = Driver(task)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: driver.stopping.set())
        driver.run()
    except Superseded as error:
        logger.warning("%s", error)
        return SUPERSEDED
    except (LogUnavailable, KafkaException) as error:
        logger.error("the log is not available: %s", error)
        return UNAVAILABLE
    except TopologyError:
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
