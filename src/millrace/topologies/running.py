"""Running a topology in the foreground."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millrace.topologies.model.config import value_of
from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.loading import load_topology
from millrace.topologies.runtime.jobs import Job
from millrace.topologies.runtime.placement import EvenScheduler
from millrace.topologies.runtime.setup import create_topics


def prepare(
    path: Path,
    bootstrap: str,
    *,
    class_name: str | None = None,
    name: str | None = None,
    workers: int | None = None,
    config: Mapping[str, Any] | None = None,
    client: Mapping[str, str] | None = None,
) -> Job:
    """Load and check a topology, prepare its topics, and place its tasks."""
    topology = load_topology(path, class_name)
    settings = dict(config or {})
    if workers is not None:
        settings["topology.workers"] = workers
    plan = topology.plan(name, settings)
    count = value_of("topology.workers", plan.config)
    if type(count) is not int or count < 1:
        raise TopologyError(f"{plan.name}: topology.workers must be a whole number from 1 on, not {count!r}")
    create_topics(plan, count, bootstrap, client or {})
    placement = [sorted(tasks) for tasks in EvenScheduler().place(plan, count) if tasks]
    return Job(
        path=str(path.resolve()),
        class_name=topology.__name__,
        name=plan.name,
        bootstrap=bootstrap,
        key=secrets.token_hex(32),
        placement=placement,
        config=settings,
        client=dict(client or {}),
    )


def run_workers(job: Job, *, master: str | None = None, spark: bool = True, once: bool = False) -> None:
    """Run a prepared topology until interrupted or, with `once`, until the log's present end is processed."""
    if not spark:
        from millrace.topologies.runtime.processes import Processes

        Processes(job).run(once=once)
        return
    try:
        from millrace.topologies.spark.driver import Driver
    except ImportError as error:
        raise TopologyError(
            f"Spark is not installed ({error}); pip install 'millrace[spark]', or pass --no-spark"
        ) from error
    Driver(job, master).run(once=once)
