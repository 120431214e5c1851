"""Topologies in a unit test: in this process, without a log and without Spark, in milliseconds.

>>> from millrace.topologies import Bolt, LogBolt, LogSpout, Topology
>>> class Shout(Bolt):
...     outputs = ["value"]
...     def process(self, tup):
...         self.emit([tup["value"].upper()])
>>> class Loud(Topology):
...     lines = LogSpout.spec("lines")
...     shout = Shout.spec(inputs=[lines])
...     out = LogBolt.spec("loud", inputs=[shout], value="value")
>>> with LocalTopology(Loud) as local:
...     local.send("lines", "hello")
...     local.values("loud")
['HELLO']
"""

from __future__ import annotations

import fnmatch
import inspect
import json
import re
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from millrace.topologies.model.config import value_of
from millrace.topologies.model.log import LogBolt, LogSpout
from millrace.topologies.model.streams import Stream
from millrace.topologies.model.topology import Plan, Topology
from millrace.topologies.model.tuples import Tuple
from millrace.topologies.runtime.engine import Engine
from millrace.topologies.runtime.records import encode_field, encode_tuple, record_values
from millrace.topologies.runtime.units import Unit

# A spout that never stops must not hang a test.
MOST_TURNS = 10_000


class Written(NamedTuple):
    """A record that the topology wrote."""

    topic: str
    key: bytes | None
    value: bytes | None


class DeadLetter(NamedTuple):
    """A tuple that failed too often."""

    component: str
    values: Sequence[Any]
    reason: str


class _Delivery(NamedTuple):
    task: int
    values: Sequence[Any]
    fails: int = 0


class LocalTopology:
    """A topology in this process; `advance` moves its time. The components run as they do on a worker."""

    def __init__(self, topology: type[Topology] | Plan, *, config: Mapping[str, Any] | None = None) -> None:
        self.plan = topology if isinstance(topology, Plan) else topology.plan(config=config)
        self._time = 0.0
        self.written: list[Written] = []
        self.dead_letters: list[DeadLetter] = []
        self._offsets: dict[str, int] = {}
        self._deliveries: deque[_Delivery] = deque()
        self._states: dict[tuple[str, int], dict[Any, Any]] = {}
        directory = Path(inspect.getfile(topology)).parent if isinstance(topology, type) else ""
        self.engine = Engine(self.plan, self, self, state_of=self._state_of, directory=str(directory))

    def __enter__(self) -> Self:
        self.engine.open()
        self.engine.activate()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.engine.close()

    # Driving it

    def send(self, topic: str, *values: Any, key: Any = None, timestamp: int | None = None) -> None:
        """Append records to a topic, and run until the topology has nothing more to do."""
        for value in values:
            self._append(topic, key, value, int(self._time * 1000) if timestamp is None else timestamp)
        self.run()

    def run(self) -> None:
        """Run until no spout emits and no tuple waits."""
        for _ in range(MOST_TURNS):
            self.engine.run_timers()
            busy = self.engine.ask_spouts()
            while self._deliveries:
                self._deliver(self._deliveries.popleft())
                self.engine.run_queue()
                busy = True
            busy |= bool(self.engine.calls) or any(spout.is_waiting for spout in self.engine.spouts.values())
            self.engine.finish()
            if not self.engine.run_queue() and not busy:
                return
        raise AssertionError(f"the topology still emits after {MOST_TURNS} turns; does a spout never stop?")

    def advance(self, seconds: float) -> None:
        """Let time pass: ticks, windows and timeouts happen on time."""
        end = self._time + seconds
        while True:
            moment = self.engine.next_timer()
            if moment is None or moment > end:
                break
            self._time = max(self._time, moment)
            self.run()
        self._time = end
        self.run()

    # Inspecting it

    def values(self, topic: str) -> list[Any]:
        """The values written to a topic, decoded if they are JSON, else as text."""
        return [_readable(record.value) for record in self.written if record.topic == topic]

    def state(self, component: str) -> dict[Any, Any]:
        """The state of a stateful bolt, of all its tasks together."""
        together: dict[Any, Any] = {}
        for (name, _), state in self._states.items():
            if name == component:
                together |= state
        return together

    def errors(self, component: str) -> list[str]:
        """The errors that a component reported."""
        tasks = {**self.engine.bolts, **self.engine.spouts}
        return [text for number in self.plan.tasks[component] for _, text in tasks[number].stats.errors]

    def instances(self, component: str) -> list[Any]:
        """The instances of a component, in the order of its tasks."""
        tasks = {**self.engine.bolts, **self.engine.spouts}
        return [tasks[number].instance_of() for number in self.plan.tasks[component]]

    # Called by the engine

    def now(self) -> float:
        return self._time

    def send_tuple(self, task: int, tup: Tuple) -> None:
        raise AssertionError("every task runs here")

    def send_ack(self, worker: int, root: int, edges: int) -> None:
        raise AssertionError("every task runs here")

    def send_fail(self, worker: int, root: int, reason: str) -> None:
        raise AssertionError("every task runs here")

    def send_reset(self, worker: int, root: int) -> None:
        raise AssertionError("every task runs here")

    def write(self, bolt: LogBolt, tup: Tuple) -> None:
        topic = bolt.topic(tup) if callable(bolt.topic) else bolt.topic
        key = None if bolt.key is None else encode_field(tup[bolt.key])
        value = encode_tuple(tup) if bolt.value is None else encode_field(tup[bolt.value])
        self.written.append(Written(topic, key, value))

    def dead_letter(self, component: str, values: Sequence[Any], stream: Stream, reason: str) -> None:
        self.dead_letters.append(DeadLetter(component, values, reason))

    def _state_of(self, component: str, task: int) -> dict[Any, Any]:
        return self._states.setdefault((component, task), {})

    # The log

    def _append(self, topic: str, key: Any, value: Any, timestamp: int) -> None:
        readers = [task for task, spout in self._log_spouts() if _reads(spout, topic)]
        if not readers:
            raise AssertionError(f"no log spout of {self.plan.name} reads the topic {topic}")
        offset = self._offsets.get(topic, -1) + 1
        self._offsets[topic] = offset
        by_component: dict[str, list[int]] = {}
        for task in readers:
            by_component.setdefault(self.engine.spouts[task].context.component, []).append(task)
        for tasks in by_component.values():
            task = tasks[offset % len(tasks)]
            spout = self.engine.spouts[task].instance
            assert isinstance(spout, LogSpout)
            encoded_key, encoded_value = encode_field(key), encode_field(value)
            values = record_values(spout.format, topic, 0, offset, timestamp, encoded_key, encoded_value)
            self._deliveries.append(_Delivery(task, values))

    def _log_spouts(self) -> list[tuple[int, LogSpout]]:
        return [
            (task, spout.instance)
            for task, spout in self.engine.spouts.items()
            if isinstance(spout.instance, LogSpout)
        ]

    def _deliver(self, delivery: _Delivery) -> None:
        def done(unit: Unit) -> None:
            if unit.failure is not None and self.plan.guarantee != "none":
                self._redeliver(delivery, unit.failure)

        self.engine.emit_record(delivery.task, delivery.values, Unit(done))

    def _redeliver(self, delivery: _Delivery, reason: str) -> None:
        fails = delivery.fails + 1
        if fails > value_of("topology.max.fails", self.plan.config):
            component = self.engine.spouts[delivery.task].context.component
            self.dead_letters.append(DeadLetter(component, delivery.values, reason))
        else:
            self._deliveries.append(delivery._replace(fails=fails))


def _reads(spout: LogSpout, topic: str) -> bool:
    if isinstance(spout.topic, str):
        return spout.topic == topic
    if isinstance(spout.topic, re.Pattern):
        return spout.topic.fullmatch(topic) is not None
    return any(fnmatch.fnmatchcase(topic, name) for name in spout.topic)


def _readable(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return json.loads(value)
    except ValueError:
        return value.decode("utf-8", "replace")
