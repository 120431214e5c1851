"""Deliveries: records on their way through a worker, delivered again when they fail, given up in the end."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from millrace.topologies.runtime.engine import Engine
from millrace.topologies.runtime.inputs import Delivery, InputPartition, Place, Unreadable
from millrace.topologies.runtime.output import Output

logger = logging.getLogger(__name__)

Part = tuple[Place, int, int]
"""A partition, an offset, and the number of a part of that record."""


class Failures(NamedTuple):
    """The failures of a part."""

    times: int
    component: str
    """The one that failed it last."""
    reason: str


class Poisoned(Exception):
    """A part failed inside a transaction, which must be aborted."""


class Deliveries:
    """Owned by the worker's loop; not thread-safe."""

    def __init__(self, engine: Engine, output: Output, *, max_fails: int, ignores_failures: bool) -> None:
        self.inputs: dict[Place, InputPartition] = {}
        self._engine = engine
        self._output = output
        self._max_fails = max_fails
        self._ignores_failures = ignores_failures
        self._fails: dict[Part, Failures] = {}
        self._failed: list[Delivery] = []
        self._careful: dict[Place, int] = {}
        """By partition: process one record per transaction up to this offset, to find the one that fails."""
        self._generation = 0
        """Rises with every abort: what was begun before it counts no more."""

    @property
    def is_careful(self) -> bool:
        return bool(self._careful)

    def begin(self, message: Any) -> None:
        """Process one record, and every tuple that follows from it in this worker.

        Raises Poisoned if it fails inside a transaction.
        """
        partition = self.inputs[message.topic(), message.partition()]
        offset = message.offset()
        if offset < partition.position:
            return
        if partition.end is not None and offset >= partition.end:
            partition.reached_end(offset)
            return
        try:
            parts = partition.source.split(message)
        except Unreadable as error:
            partition.begin(offset, 0)
            partition.source.give_up(message, None, partition.source.component or "", str(error))
            return
        partition.begin(offset, len(parts))
        for index, part in enumerate(parts):
            self._deliver(Delivery(self._done, partition, message, index, part, self._generation))
        self.handle_failures()

    def end_care(self, message: Any) -> None:
        """A record has been committed alone: it was not the one that fails."""
        place = (message.topic(), message.partition())
        if message.offset() >= self._careful.get(place, message.offset()):
            self._careful.pop(place, None)

    def _deliver(self, delivery: Delivery) -> None:
        if self._fails:
            failures = self._fails.get(delivery.key)
            if failures is not None and failures.times > self._max_fails:
                delivery.partition.source.give_up(
                    delivery.message, delivery.part, failures.component, failures.reason
                )
                self._complete(delivery)
                return
        delivery.partition.source.deliver(delivery.part, delivery)
        self._engine.run_queue()

    def _complete(self, delivery: Delivery) -> None:
        delivery.partition.complete(delivery.message.offset())
        if self._fails:
            self._fails.pop(delivery.key, None)

    def _done(self, delivery: Delivery) -> None:
        if delivery.generation != self._generation:
            return
        delivery.partition.source.done(delivery)
        if delivery.failure is None or self._ignores_failures:
            self._complete(delivery)
        else:
            # A bolt may be in the middle of its process: what follows has to wait.
            self._failed.append(delivery)

    def handle_failures(self) -> None:
        """Deliver failed parts again, or give them up; inside a transaction, raise Poisoned."""
        if self._engine.abort_reason is not None:
            raise Poisoned(self._engine.abort_reason)
        while self._failed:
            delivery = self._failed.pop(0)
            reason = delivery.failure or ""
            known = self._fails.get(delivery.key)
            times = 1 if known is None else known.times + 1
            self._fails[delivery.key] = Failures(times, delivery.failed_by, reason)
            if self._output.is_transactional:
                self._careful[delivery.partition.place] = delivery.message.offset()
                logger.warning("%s-%d@%d failed: %s", *delivery.key[0], delivery.key[1], reason)
                raise Poisoned(reason)
            self._deliver(
                Delivery(
                    self._done,
                    delivery.partition,
                    delivery.message,
                    delivery.index,
                    delivery.part,
                    self._generation,
                )
            )

    def rewind(self) -> dict[Place, int]:
        """Forget everything that is under way; returns the offsets to read again from."""
        self._generation += 1
        self._engine.queue.clear()
        self._failed.clear()
        return {place: partition.rewind() for place, partition in self.inputs.items()}
