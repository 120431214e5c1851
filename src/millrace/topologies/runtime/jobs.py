"""Jobs: a worker described as JSON, so that any process can run it."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from millrace.topologies.model.loading import load_topology
from millrace.topologies.model.log import LogSpout
from millrace.topologies.model.specs import ComponentSpec
from millrace.topologies.model.topology import Plan
from millrace.topologies.runtime.history import History
from millrace.topologies.runtime.progress import Progress
from millrace.topologies.runtime.worker import Worker, WorkerJob

STOP_SECONDS = 30.0


@dataclass(frozen=True)
class Job:
    """A topology as it is run: its file, its name and settings, and which worker runs which tasks."""

    path: str
    class_name: str
    name: str
    bootstrap: str
    key: str
    placement: Sequence[Sequence[int]]
    config: Mapping[str, Any] = field(default_factory=dict)
    client: Mapping[str, str] = field(default_factory=dict)
    id: str = ""
    """Distinguishes the runs of a topology, the name unless given."""
    incarnation: str = ""
    """The driver's start that the workers belong to; empty if there is no driver."""

    history: Mapping[str, Any] | None = None
    """The range of a run over history; None for a run that follows the log."""
    archive: str = ""
    """A ZIP archive of the topology's file with everything that workers need beside it."""
    executors: Mapping[str, int] = field(default_factory=dict)
    """By component: threads of each worker, instead of what its spec says."""

    def to_json(self, worker: int) -> str:
        return json.dumps({"job": asdict(self), "worker": worker})

    def plan(self) -> Plan:
        plan = load_topology(Path(self.path), self.class_name).plan(self.name, self.config)
        return replace(plan, components={**plan.components, **self._with_executors(plan)})

    def _with_executors(self, plan: Plan) -> dict[str, ComponentSpec]:
        return {
            name: replace(spec, config={**spec.config, "topology.executors": self.executors[name]})
            for name, spec in plan.components.items()
            if name in self.executors
        }

    def has_end(self) -> bool:
        """Whether the topology reads topics, and so can come to their end."""
        plan = self.plan()
        return any(issubclass(plan.components[name].component, LogSpout) for name in plan.spouts)

    def progress(self) -> Progress:
        """Shows how far the topology has come. The caller closes it."""
        history = None if self.history is None else History(**self.history)
        return Progress(self.plan(), self.bootstrap, self.client, history)

    def worker_job(self, number: int) -> WorkerJob:
        return WorkerJob(
            self.plan(),
            [frozenset(tasks) for tasks in self.placement],
            number,
            self.bootstrap,
            bytes.fromhex(self.key),
            self.client,
            self.id or self.name,
            self.incarnation,
            None if self.history is None else History(**self.history),
            str(Path(self.path).parent),
        )


def main() -> None:
    """Run the worker whose job stands on standard input, until SIGTERM or SIGINT."""
    content = json.loads(sys.stdin.readline())
    logging.basicConfig(
        format=f"%(asctime)s %(levelname)s worker {content['worker']}, %(name)s: %(message)s",
        level=logging.INFO,
    )
    worker = Worker(Job(**content["job"]).worker_job(content["worker"]))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.stopping.set())
    threading.Thread(target=_end_with_parent, args=(worker.stopping,), daemon=True).start()
    worker.run()


def _end_with_parent(stopping: threading.Event) -> None:
    """Stop the worker when the other end of standard input is closed, and end it if it does not stop."""
    os.read(sys.stdin.fileno(), 1)
    stopping.set()
    time.sleep(STOP_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
