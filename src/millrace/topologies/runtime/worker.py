"""A worker: reads its partitions of the log, runs its tasks, writes what they emit, and commits.

Everything happens on one thread. A worker that fails ends with its exception. Its driver starts it
again, and it continues from the last commit.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from millrace.topologies.model.bolts import StatefulBolt
from millrace.topologies.model.config import value_of
from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.log import LogSpout
from millrace.topologies.model.topology import Plan
from millrace.topologies.model.tuples import Tuple
from millrace.topologies.runtime import topics
from millrace.topologies.runtime.control import Control
from millrace.topologies.runtime.engine import Engine
from millrace.topologies.runtime.figures import Reporter
from millrace.topologies.runtime.frames import Frames, Values
from millrace.topologies.runtime.inputs import InputPartition, Place
from millrace.topologies.runtime.output import Output
from millrace.topologies.runtime.records import record_values
from millrace.topologies.runtime.restore import restore
from millrace.topologies.runtime.state import TaskState
from millrace.topologies.runtime.units import Unit

logger = logging.getLogger(__name__)

POLL_MESSAGES = 500
IDLE_SECONDS = 0.1
SPOUT_REST_SECONDS = 0.001
SETUP_SECONDS = 30.0


@dataclass(frozen=True)
class WorkerJob:
    """The job of one worker."""

    plan: Plan
    placement: Sequence[frozenset[int]]
    number: int
    bootstrap: str
    key: bytes
    client: Mapping[str, str] = field(default_factory=dict)
    """Further properties of the clients, such as those of security."""
    topology_id: str = ""
    incarnation: str = ""
    """The driver's start that this worker belongs to; empty if there is no driver."""


class Source(NamedTuple):
    """A partition that a worker reads, and what it does with its records."""

    place: Place
    deliver: Callable[[Any, Unit], None]
    start: str
    done: Callable[[Unit], None] | None = None
    """Called when a record is processed or has failed."""


class Poisoned(Exception):
    """An input failed inside a transaction, which must be aborted."""

    def __init__(self, place: Place, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.place = place
        self.offset = offset
        self.reason = reason


class Worker:
    """Runs until stopped. Owned by the thread that runs it."""

    def __init__(self, job: WorkerJob) -> None:
        plan = self.plan = job.plan
        self.job = job
        self.stopping = threading.Event()
        self._values = Values(allows_pickle=bool(value_of("topology.allow.pickle", plan.config)))
        self._frames = Frames(job.key, self._values)
        self._indexes = {
            task: (component, index)
            for component, tasks in plan.tasks.items()
            for index, task in enumerate(tasks)
        }
        self._control = Control(topics.control_topic(plan.name), job.key, job.incarnation)
        self._states: dict[tuple[str, int], TaskState] = {}
        self._inputs: dict[Place, InputPartition] = {}
        self._fails: dict[tuple[Place, int], int] = {}
        self._reasons: dict[tuple[Place, int], str] = {}
        self._failed: list[tuple[Any, str]] = []
        self._careful: dict[Place, int] = {}
        """By partition: process one record per transaction up to this offset, to find the one that fails."""
        self._committed_at = time.monotonic()
        self._generation = 0
        """Rises with every abort: what was begun before it counts no more."""
        # A worker that was fenced must not write state, so state is written in transactions too.
        transactional = plan.guarantee == "exactly-once" or any(
            issubclass(spec.component, StatefulBolt) for spec in plan.components.values()
        )
        self._output = Output(
            plan,
            {**job.client, "bootstrap.servers": job.bootstrap},
            self._frames,
            topics.transactional_id(plan.name, job.number) if transactional else None,
        )
        self._commit_seconds = value_of("topology.state.checkpoint.interval.ms", plan.config) / 1000
        self.engine = Engine(
            plan,
            self._output,
            self,
            tasks=job.placement[job.number],
            worker=job.number,
            state_of=self._open_state,
        )
        self._consumer = Consumer(self._consumer_config())
        self._reporter = Reporter(
            job.topology_id or plan.name,
            job.number,
            {**job.client, "bootstrap.servers": job.bootstrap},
            [*self.engine.spouts.values(), *self.engine.bolts.values()],
        )

    def _consumer_config(self) -> dict[str, Any]:
        return {
            **self.job.client,
            "bootstrap.servers": self.job.bootstrap,
            "group.id": topics.group_of(self.plan.name),
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "queued.max.messages.kbytes": 16_384,
            "fetch.error.backoff.ms": 50,
        }

    # What the engine asks for

    def now(self) -> float:
        return time.monotonic()

    def _open_state(self, component: str, task: int) -> TaskState:
        return self._states.setdefault((component, task), TaskState())

    # Life

    def run(self) -> None:
        """Run until `stopping` is set, then commit and close. An error is reported to the metrics topic."""
        try:
            self._run()
        except Exception as error:
            self._reporter.report_failure("".join(traceback.format_exception(error)).rstrip())
            raise
        finally:
            self._reporter.close()

    def _run(self) -> None:
        # First of all: no earlier worker of this number can write from here on.
        self._output.fence()
        self._assign()
        self._restore()
        self.engine.open()
        try:
            while not self.stopping.is_set() and not self._control.ends:
                self._turn()
            if self.engine.active:
                self.engine.deactivate()
            self._commit()
        finally:
            self.engine.close()
            self._reporter.report(self.now())
            self._consumer.close()

    def _assign(self) -> None:
        """Take up every input where it was committed last."""
        sources = self._sources()
        wanted = [TopicPartition(*source.place) for source in sources]
        known = self._consumer.committed(wanted, SETUP_SECONDS) if wanted else []
        for source, found in zip(sources, known, strict=True):
            offset = found.offset if found.offset >= 0 else self._first_offset(source)
            self._inputs[source.place] = InputPartition(source.place, source.deliver, offset, source.done)
        self._consumer.assign(
            [
                TopicPartition(self._control.topic, 0, OFFSET_BEGINNING),
                *(TopicPartition(*place, partition.position) for place, partition in self._inputs.items()),
            ]
        )
        # Nothing enters the topology before the control topic has been read.
        self._consumer.pause(self._spout_partitions())

    def _first_offset(self, source: Source) -> int:
        low, high = self._consumer.get_watermark_offsets(TopicPartition(*source.place), timeout=SETUP_SECONDS)
        return int(high if source.start == "latest" else low)

    def _sources(self) -> list[Source]:
        """The partitions that this worker reads: those of its log spouts, and the edges to its bolts."""
        found: list[Source] = []
        for task, spout in self.engine.spouts.items():
            if isinstance(spout.instance, LogSpout):
                count = self.plan.components[spout.context.component].tasks
                for topic, partitions in self._partitions_of(spout.instance).items():
                    found += [
                        Source(
                            (topic, index),
                            partial(self._emit_record, task, spout.instance),
                            spout.instance.start,
                            spout.record_done,
                        )
                        for index in range(partitions)
                        if index % count == spout.context.task_index
                    ]
        for task, bolt in self.engine.bolts.items():
            if self._has_remote_input(task):
                place = (topics.edge_topic(self.plan.name, bolt.context.component), bolt.context.task_index)
                found.append(Source(place, partial(self._deliver_frame, task), "earliest"))
        if self._has_own_spouts and len(self.job.placement) > 1:
            place = (topics.ack_topic(self.plan.name), self.job.number)
            # Acks of trees that an earlier worker began mean nothing to this one.
            found.append(Source(place, self._deliver_acks, "latest"))
        return found

    @property
    def _has_own_spouts(self) -> bool:
        """Whether this worker runs spouts that the user wrote."""
        return any(not isinstance(spout.instance, LogSpout) for spout in self.engine.spouts.values())

    def _partitions_of(self, spout: LogSpout) -> dict[str, int]:
        listed = self._consumer.list_topics(timeout=SETUP_SECONDS).topics
        return {name: len(listed[name].partitions) for name in spout.topics_among(listed)}

    def _has_remote_input(self, task: int) -> bool:
        component, _ = self._indexes[task]
        senders = {
            sender for edge in self.plan.edges_to(component) for sender in self.plan.tasks[edge.source]
        }
        return not senders <= self.engine.hosted

    def _restore(self) -> None:
        for (component, task), state in self._states.items():
            place = (topics.state_topic(self.plan.name, component), self._indexes[task][1])
            count = restore(self._consumer_config(), place, state, self._values)
            logger.info("%s, task %d: restored %d changes of its state", component, task, count)

    # Input

    def _emit_record(self, task: int, spout: LogSpout, message: Any, unit: Unit) -> None:
        try:
            values = record_values(
                spout.format,
                message.topic(),
                message.partition(),
                message.offset(),
                message.timestamp()[1],
                message.key(),
                message.value(),
            )
        except ValueError as error:
            # Another try would not help.
            unit.pending += 1
            unit.fail(f"not {spout.format}: {error}")
            return
        self.engine.emit_record(task, values, unit)

    def _deliver_frame(self, task: int, message: Any, unit: Unit) -> None:
        unit.pending += 1
        for sent in self._frames.decode(message.value()):
            stream = self.plan.components[sent.component].streams[sent.stream]
            edges = None if sent.edges is None else dict(sent.edges)
            unit.pending += 1
            self.engine.deliver(
                task,
                Tuple(sent.values, stream.positions, sent.component, sent.stream, sent.task, edges, (unit,)),
            )
        unit.release()

    def _deliver_acks(self, message: Any, unit: Unit) -> None:
        unit.pending += 1
        acks = self._frames.decode_acks(message.value())
        for root in acks.resets:
            self.engine.acker.reset_timeout(root)
        for root, edges in acks.done.items():
            self.engine.acker.ack(root, edges)
        for root, reason in acks.failed.items():
            self.engine.acker.fail(root, reason)
        unit.release()

    # Orders of the driver

    def _spout_partitions(self) -> list[TopicPartition]:
        """The partitions of the log spouts: all inputs but the topology's own."""
        own = topics.own_prefix(self.plan.name)
        return [TopicPartition(*place) for place in self._inputs if not place[0].startswith(own)]

    def _follow_orders(self) -> None:
        if self._control.active and not self.engine.active:
            self._consumer.resume(self._spout_partitions())
            self.engine.activate()
        elif self.engine.active and not self._control.active:
            self._consumer.pause(self._spout_partitions())
            self.engine.deactivate()

    # Running

    def _turn(self) -> None:
        self._follow_orders()
        self.engine.run_timers()
        messages = self._poll()
        try:
            for message in messages:
                if message.topic() == self._control.topic:
                    self._control.note(message)
                elif message.error() is None:
                    self._begin(message)
                else:
                    self._note(message)
            asked = self.engine.ask_spouts()
            self.engine.run_queue()
            self._handle_failures()
            self._output.send_frames()
            if self._is_commit_due(idle=not messages and not asked):
                self._commit()
            if time.monotonic() >= self._reporter.due:
                self._reporter.report(self.now())
        except Poisoned as failure:
            self._abort(failure)

    def _poll(self) -> list[Any]:
        """The records that are there, waiting for the first of them as long as nothing else is to be done."""
        first = self._consumer.poll(self._patience())
        if first is None:
            return []
        return [first] if self._careful else [first, *self._consumer.consume(POLL_MESSAGES, 0)]

    def _patience(self) -> float:
        if self._has_own_spouts:
            return SPOUT_REST_SECONDS
        moment = self.engine.next_timer()
        wait = IDLE_SECONDS if moment is None else max(min(moment - self.now(), IDLE_SECONDS), 0.0)
        return min(wait, self._commit_seconds) if self._has_uncommitted() else wait

    def _note(self, message: Any) -> None:
        """An event instead of a record: the end of a partition, or an error."""
        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            self._inputs[message.topic(), message.partition()].reached_end(message.offset())
        elif error.fatal() or not error.retriable():
            raise KafkaException(error)

    def _begin(self, message: Any) -> None:
        """Process one input, and every tuple that follows from it in this worker."""
        place, offset = (message.topic(), message.partition()), message.offset()
        partition = self._inputs[place]
        if offset < partition.position:
            return
        partition.begin(offset)
        if self._fails.get((place, offset), 0) > value_of("topology.max.fails", self.plan.config):
            self._output.give_up(message, self._reasons.pop((place, offset)))
            partition.complete(offset)
        else:
            self._deliver(message)
            self._handle_failures()
        if self._careful:
            self._commit()
            if offset >= self._careful.get(place, offset):
                self._careful.pop(place, None)

    def _deliver(self, message: Any) -> None:
        unit = Unit(partial(self._input_done, message, self._generation))
        self._inputs[message.topic(), message.partition()].deliver(message, unit)
        self.engine.run_queue()

    def _input_done(self, message: Any, generation: int, unit: Unit) -> None:
        if generation != self._generation:
            return
        place, offset = (message.topic(), message.partition()), message.offset()
        finished = self._inputs[place].finished
        if finished is not None:
            finished(unit)
        if unit.failure is None or self.plan.guarantee == "none":
            self._inputs[place].complete(offset)
            self._fails.pop((place, offset), None)
            self._reasons.pop((place, offset), None)
            return
        # A bolt may be in the middle of its process: what follows has to wait.
        self._failed.append((message, unit.failure))

    def _handle_failures(self) -> None:
        """Deliver failed inputs again, or give them up; inside a transaction, raise Poisoned."""
        while self._failed:
            message, reason = self._failed.pop(0)
            place, offset = (message.topic(), message.partition()), message.offset()
            if self._output.is_transactional:
                raise Poisoned(place, offset, reason)
            fails = self._fails[place, offset] = self._fails.get((place, offset), 0) + 1
            if fails > value_of("topology.max.fails", self.plan.config):
                self._output.give_up(message, reason)
                self._inputs[place].complete(offset)
                self._fails.pop((place, offset), None)
            else:
                self._deliver(message)

    # Committing

    def _has_uncommitted(self) -> bool:
        return self._output.in_transaction or any(
            partition.offset_to_commit() is not None for partition in self._inputs.values()
        )

    def _is_commit_due(self, *, idle: bool) -> bool:
        if not self._has_uncommitted():
            return False
        return idle or time.monotonic() - self._committed_at >= self._commit_seconds

    def _commit(self) -> None:
        """Make everything last: outputs, states, and how far the inputs are done."""
        self._output.send_frames()
        offsets = [
            offset
            for partition in self._inputs.values()
            if (offset := partition.offset_to_commit()) is not None
        ]
        if self._output.is_transactional:
            self._check_nothing_is_held()
            self._write_states()
            self._output.commit(offsets, self._consumer.consumer_group_metadata())
        else:
            self._output.flush()
            if offsets:
                self._consumer.commit(offsets=offsets, asynchronous=False)
        for offset in offsets:
            self._inputs[offset.topic, offset.partition].committed = offset.offset
        for state in self._states.values():
            state.commit()
        self._committed_at = time.monotonic()

    def _write_states(self) -> None:
        for (component, task), state in self._states.items():
            topic, index = topics.state_topic(self.plan.name, component), self._indexes[task][1]
            for key, value, deleted in state.changes():
                self._output.produce(
                    topic,
                    partition=index,
                    key=self._values.encode(key),
                    value=None if deleted else self._values.encode(value),
                )

    def _check_nothing_is_held(self) -> None:
        """A tuple may outlive a commit only as state: what a bolt holds would be lost or processed twice."""
        if self.plan.guarantee != "exactly-once":
            return
        if any(partition.under_way for partition in self._inputs.values()):
            raise TopologyError(
                f"{self.plan.name} is exactly-once, but one of its bolts keeps tuples without acking them; "
                "keep them in the state of a StatefulBolt, or use guarantee = 'at-least-once'"
            )

    def _abort(self, failure: Poisoned) -> None:
        """Undo everything since the last commit, and read it again one record at a time."""
        key = (failure.place, failure.offset)
        self._fails[key] = self._fails.get(key, 0) + 1
        self._reasons[key] = failure.reason
        logger.warning("%s-%d@%d failed: %s", *failure.place, failure.offset, failure.reason)
        self._generation += 1
        self.engine.queue.clear()
        self._failed.clear()
        self._output.abort()
        for state in self._states.values():
            state.abort()
        for place, partition in self._inputs.items():
            self._consumer.seek(TopicPartition(*place, partition.rewind()))
        self._careful[failure.place] = failure.offset
