"""Changes of what should run: submit, update, and Storm's verbs, for commands and for the HTTP API."""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from millrace.topologies.model.config import value_of
from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.loading import load_topology
from millrace.topologies.model.topology import Plan
from millrace.topologies.supervisor.board import Board
from millrace.topologies.supervisor.code import chunk_count, digest_of, pack, ship
from millrace.topologies.supervisor.description import components_of, edges_of, objections
from millrace.topologies.supervisor.records import Job


def _ignore(done: int) -> None:
    """Progress that no one watches."""


class Package:
    """A topology's file, loaded and packed with everything that it needs."""

    def __init__(
        self,
        file: Path,
        *,
        class_name: str | None = None,
        name: str | None = None,
        config: Mapping[str, Any] | None = None,
        files: Sequence[Path] = (),
    ) -> None:
        topology = load_topology(file, class_name)
        self.file = file.name
        self.class_name = topology.__name__
        self.config = dict(config or {})
        self.plan: Plan = topology.plan(name, self.config)
        _check_workers(self.plan.name, value_of("topology.workers", self.plan.config))
        self.content = pack(file, files)

    def fields(self) -> dict[str, Any]:
        """The fields of a job that describe its code."""
        return {
            "digest": digest_of(self.content),
            "chunks": chunk_count(self.content),
            "file": self.file,
            "class_name": self.class_name,
            "guarantee": self.plan.guarantee,
            "components": components_of(self.plan),
            "edges": edges_of(self.plan),
            "config": dict(self.plan.config),
        }


def submit(
    board: Board,
    package: Package,
    *,
    master: str | None = None,
    spark: bool = True,
    active: bool = True,
    on_progress: Callable[[int], object] = _ignore,
) -> Job:
    """Ship a topology and write its job."""
    name = package.plan.name
    if name in board.jobs:
        raise TopologyError(
            f"{name} runs already; `millrace topology update {name} FILE` replaces its code, "
            "--name NAME submits a second one"
        )
    ship(board, package.content, on_progress)
    job = Job(
        name=name,
        number=len(board.jobs) + 1,
        submitted_ms=round(time.time() * 1000),
        owner=getpass.getuser(),
        master=master,
        spark=spark,
        wanted="active" if active else "inactive",
        **package.fields(),
    )
    board.put_job(job)
    return job


def update(board: Board, job: Job, package: Package, on_progress: Callable[[int], object] = _ignore) -> Job:
    """Replace the code of a topology at a commit; refused with the reasons if its state would not fit."""
    _check_alive(job)
    reasons = list(objections(job, package.plan))
    if reasons:
        raise TopologyError(
            f"{job.name} cannot be updated: {'; '.join(reasons)}. Kill it and submit the new version, "
            "under another --name if it must not find the old state"
        )
    ship(board, package.content, on_progress)
    changed = replace(job, generation=job.generation + 1, **package.fields())
    board.put_job(changed)
    board.remove_code(job)
    return changed


def activate(board: Board, job: Job) -> Job:
    return _put(board, job, wanted="active")


def deactivate(board: Board, job: Job) -> Job:
    return _put(board, job, wanted="inactive")


def kill(board: Board, job: Job, wait_seconds: float | None = None) -> Job:
    """End a topology: its sources stop now, its workers after the wait, by default the message time-out."""
    if wait_seconds is None:
        wait_seconds = float(value_of("topology.message.timeout.secs", job.config))
    if wait_seconds < 0:
        raise TopologyError(f"{job.name}: the wait before a kill cannot be {wait_seconds:g} s")
    changed = replace(job, wanted="killed", wait_seconds=wait_seconds)
    board.put_job(changed)
    return changed


def rebalance(
    board: Board, job: Job, *, workers: int | None = None, executors: Mapping[str, int] | None = None
) -> Job:
    """Place the tasks again, over another number of workers if given; no tuple is lost."""
    _check_alive(job)
    for component, count in (executors or {}).items():
        known = job.components.get(component)
        if known is None:
            raise TopologyError(
                f"{job.name} has no component {component}; it has: {', '.join(sorted(job.components))}"
            )
        if not known.takes_executors:
            raise TopologyError(f"{component} runs in the loops of the workers; threads cannot run its tasks")
        if not 1 <= count <= len(known.tasks):
            raise TopologyError(
                f"{component} has {len(known.tasks)} tasks, which is fixed: it can have 1 to "
                f"{len(known.tasks)} executors, not {count}"
            )
    config = dict(job.config)
    if workers is not None:
        _check_workers(job.name, workers)
        config["topology.workers"] = workers
    changed = replace(
        job,
        config=config,
        executors={**job.executors, **(executors or {})},
        generation=job.generation + 1,
    )
    board.put_job(changed)
    return changed


def debug(board: Board, job: Job, component: str | None, percent: float) -> Job:
    """Sample a share of the tuples of a component, or of all; 0 ends it."""
    if component is not None and component not in job.components:
        raise TopologyError(
            f"{job.name} has no component {component}; it has: {', '.join(sorted(job.components))}"
        )
    if not 0 <= percent <= 100:
        raise TopologyError(f"a share is from 0 to 100 percent, not {percent:g}")
    chosen = [component] if component is not None else list(job.components)
    shares = {**job.debug, **dict.fromkeys(chosen, percent)}
    return _put(board, job, debug={name: share for name, share in shares.items() if share > 0})


def _put(board: Board, job: Job, **changes: Any) -> Job:
    _check_alive(job)
    changed = replace(job, **changes)
    board.put_job(changed)
    return changed


def _check_alive(job: Job) -> None:
    if job.wanted == "killed":
        raise TopologyError(f"{job.name} is being killed")


def _check_workers(name: str, count: object) -> None:
    if type(count) is not int or count < 1:
        raise TopologyError(f"{name}: topology.workers must be a whole number from 1 on, not {count!r}")
