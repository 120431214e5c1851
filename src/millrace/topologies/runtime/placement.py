"""Placement: which worker runs which tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from millrace.topologies.model.topology import Plan


class Scheduler(Protocol):
    """Places the tasks of a topology."""

    def place(self, plan: Plan, workers: int) -> Sequence[frozenset[int]]:
        """The tasks of each worker. Every task is placed once."""


class EvenScheduler:
    """Spreads every component over all workers, so that each worker has a task to talk to in itself.

    Components with fewer tasks than there are workers begin where the component before them ended.
    """

    def place(self, plan: Plan, workers: int) -> Sequence[frozenset[int]]:
        placed: list[set[int]] = [set() for _ in range(workers)]
        next_worker = 0
        for component in plan.components:
            tasks = plan.tasks[component]
            for number, task in enumerate(tasks):
                placed[(next_worker + number) % workers].add(task)
            next_worker = (next_worker + len(tasks)) % workers
        return [frozenset(tasks) for tasks in placed]
