"""Running a topology in the foreground."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import KafkaException

from millrace.topologies.model.config import value_of
from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.loading import load_topology
from millrace.topologies.runtime.control import topology_key
from millrace.topologies.runtime.control_writer import ControlWriter, Superseded
from millrace.topologies.runtime.history import settle
from millrace.topologies.runtime.jobs import Job
from millrace.topologies.runtime.placement import EvenScheduler
from millrace.topologies.runtime.setup import create_topics

logger = logging.getLogger(__name__)

GUARD_SECONDS = 2.0


def prepare(
    path: Path,
    bootstrap: str,
    *,
    class_name: str | None = None,
    name: str | None = None,
    workers: int | None = None,
    config: Mapping[str, Any] | None = None,
    client: Mapping[str, str] | None = None,
    signing_key: bytes | None = None,
    id: str = "",
    over: tuple[int | None, int | None] | None = None,
    executors: Mapping[str, int] | None = None,
) -> Job:
    """Load and check a topology, prepare its topics, and place its tasks.

    Workers sign what they write for each other. A run with another key than the last one cannot read what is
    still on its way; without a key, one is made for this run.

    `over` makes it a run over history: from a moment to another, in milliseconds, None for the log's ends.
    """
    topology = load_topology(path, class_name)
    settings = dict(config or {})
    if workers is not None:
        settings["topology.workers"] = workers
    plan = topology.plan(name, settings)
    count = value_of("topology.workers", plan.config)
    if type(count) is not int or count < 1:
        raise TopologyError(f"{plan.name}: topology.workers must be a whole number from 1 on, not {count!r}")
    history = None
    if over is not None:
        # A run of its own: neither its offsets nor its state are those of the topology that follows the log.
        plan = topology.plan(name or f"{plan.name}-history-{secrets.token_hex(4)}", settings)
        history = asdict(settle(plan, bootstrap, client or {}, *over))
    create_topics(plan, count, bootstrap, client or {})
    placement = [sorted(tasks) for tasks in EvenScheduler().place(plan, count) if tasks]
    return Job(
        path=str(path.resolve()),
        class_name=topology.__name__,
        name=plan.name,
        bootstrap=bootstrap,
        key=topology_key(signing_key or secrets.token_bytes(32), plan.name).hex(),
        placement=placement,
        config=settings,
        client=dict(client or {}),
        id=id,
        history=history,
        executors=dict(executors or {}),
    )


class Workers(Protocol):
    """The workers of a topology, wherever they run."""

    def run(self, *, once: bool = False) -> None:
        """Run until interrupted or, with `once`, until everything that was in the log is processed."""

    def interrupt(self) -> None:
        """Let `run` end soon. Any thread may call it."""

    @property
    def up(self) -> int:
        """The number of workers that run."""


def new_workers(
    job: Job,
    *,
    master: str | None = None,
    spark: bool = True,
    log: Path | None = None,
) -> Workers:
    """The workers of a prepared topology: tasks of a Spark job, or plain processes.

    Plain processes write their log to the file, if one is given.
    """
    if not spark:
        from millrace.topologies.runtime.processes import Processes

        return Processes(job, log)
    try:
        from millrace.topologies.spark.driver import Driver
    except ImportError as error:
        raise TopologyError(
            f"Spark is not installed ({error}); pip install 'millrace[spark]', or pass --no-spark"
        ) from error
    return Driver(job, master)


def run_workers(job: Job, *, master: str | None = None, spark: bool = True, once: bool = False) -> None:
    """Run a prepared topology until interrupted or, with `once`, until the log's present end is processed.

    Another driver of the same topology ends when this one begins, and this one when the next begins.
    """
    if once and job.history is None and not job.has_end():
        raise TopologyError(
            f"{job.name} reads no topic, so it has no end: only its own spouts know when they are done; "
            "run it without --once"
        )
    once = once or job.history is not None
    writer = ControlWriter(job.name, bytes.fromhex(job.key), job.bootstrap, job.client)
    writer.take_over()
    job = replace(job, incarnation=writer.begin(job.plan(), len(job.placement)))
    workers = new_workers(job, master=master, spark=spark)
    guard = _Guard(writer, workers)
    guard.start()
    try:
        workers.run(once=once)
    finally:
        guard.end()
    if guard.superseded is not None:
        raise guard.superseded


class _Guard(threading.Thread):
    """Notices that another driver has taken over."""

    def __init__(self, writer: ControlWriter, workers: Workers) -> None:
        super().__init__(name="driver-guard", daemon=True)
        self._writer = writer
        self._workers = workers
        self._over = threading.Event()
        self.superseded: Superseded | None = None

    def run(self) -> None:
        while not self._over.wait(GUARD_SECONDS):
            try:
                self._writer.renew()
            except Superseded as error:
                self.superseded = error
                self._workers.interrupt()
                return
            except KafkaException as error:
                logger.warning("the log does not accept the driver's mark: %s", error)

    def end(self) -> None:
        self._over.set()
        self.join()
