"""Back-pressure: a worker pauses its inputs while too many bytes wait behind them in other workers.

Inputs are also paused while the topology is not active.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition

from millrace.topologies.model.topology import Plan
from millrace.topologies.runtime import topics
from millrace.topologies.runtime.engine import Engine
from millrace.topologies.runtime.inputs import InputPartition, Place
from millrace.topologies.runtime.lag import Lag, Laggard

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 0.05
TIMEOUT_SECONDS = 5.0


class Backpressure:
    """Owned by the worker's loop; not thread-safe."""

    def __init__(
        self,
        plan: Plan,
        consumer: Consumer,
        lag: Lag,
        engine: Engine,
        inputs: Mapping[Place, InputPartition],
    ) -> None:
        self._consumer = consumer
        self._lag = lag
        self._engine = engine
        self._inputs = inputs
        self._places = {
            task: (topics.edge_topic(plan.name, component), index)
            for component, tasks in plan.tasks.items()
            for index, task in enumerate(tasks)
        }
        self._tasks = {place: task for task, place in self._places.items()}
        self._next = 0.0
        self._applied: tuple[bool, frozenset[str], int] | None = None

    def update(self, now: float) -> None:
        """Look how far the receivers are, if much waits for them."""
        waiting = self._lag.by_task()
        if not waiting or now < self._next:
            return
        self._next = now + INTERVAL_SECONDS
        wanted = [TopicPartition(*self._places[task]) for task in waiting]
        try:
            committed = self._consumer.committed(wanted, TIMEOUT_SECONDS)
        except KafkaException as error:
            logger.info("the progress of other workers is not known now: %s", error)
            return
        for found in committed:
            if found.offset >= 0:
                self._lag.processed(self._tasks[found.topic, found.partition], found.offset)
        self._engine.held_back = self._lag.held_back()

    def apply(self, *, active: bool) -> None:
        """Pause the inputs whose component is held back, and the sources of a topology that is not active."""
        wanted = (active, self._engine.held_back, sum(part.is_read for part in self._inputs.values()))
        if wanted == self._applied:
            return
        self._applied = wanted
        paused: list[TopicPartition] = []
        resumed: list[TopicPartition] = []
        for part in self._inputs.values():
            source = part.source
            pause = (
                part.is_read
                or source.component in self._engine.held_back
                or not (active or source.is_internal)
            )
            if pause != part.paused:
                part.paused = pause
                (paused if pause else resumed).append(TopicPartition(*part.place))
        if paused:
            self._consumer.pause(paused)
        if resumed:
            self._consumer.resume(resumed)

    def report(self, laggard: Laggard, placement: Sequence[frozenset[int]]) -> None:
        """Name a task that is far behind its peers, and its worker, as an error of this worker."""
        worker = next(number for number, tasks in enumerate(placement) if laggard.task in tasks)
        text = (
            f"worker {worker} lags far behind its peers: {laggard.lag_bytes:,} bytes wait for task "
            f"{laggard.task} of {laggard.component}, {laggard.median_bytes:,.0f} for the others"
        )
        tasks = [*self._engine.spouts.values(), *self._engine.bolts.values()]
        tasks[0].report_error(text)
