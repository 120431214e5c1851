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
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from millrace.topologies.model.bolts import StatefulBolt
from millrace.topologies.model.config import value_of
from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.log import LogSpout
from millrace.topologies.model.topology import Plan
from millrace.topologies.runtime import topics
from millrace.topologies.runtime.backpressure import Backpressure
from millrace.topologies.runtime.control import Control
from millrace.topologies.runtime.deliveries import Deliveries, Poisoned
from millrace.topologies.runtime.engine import Engine
from millrace.topologies.runtime.figures import Reporter
from millrace.topologies.runtime.frames import Frames, Values
from millrace.topologies.runtime.history import History, RecordClock
from millrace.topologies.runtime.inputs import InputPartition, Place, Source
from millrace.topologies.runtime.lag import Lag
from millrace.topologies.runtime.local_stores import LocalStores
from millrace.topologies.runtime.memory import check_memory
from millrace.topologies.runtime.output import Output
from millrace.topologies.runtime.restore import restore
from millrace.topologies.runtime.sampling import Sampler
from millrace.topologies.runtime.sources import sources_of
from millrace.topologies.runtime.state import TaskState
from millrace.topologies.runtime.trimming import Trimmer
from millrace.topologies.runtime.watchdog import Watchdog

logger = logging.getLogger(__name__)

POLL_MESSAGES = 500
PREFETCH_KILOBYTES = 16_384
IDLE_SECONDS = 0.1
SPOUT_REST_SECONDS = 0.001
SETUP_SECONDS = 30.0
# Ticks that one record can cause in a run over history, after a long silence of the log.
MOST_TICKS = 10_000
# Tuples that bolts outside the loop work on at a time.
MOST_CALLS = 1000
# A bolt that takes longer for one tuple hangs: rather less than an open transaction may last.
HANG_SECONDS = 30.0
TRANSACTION_HANG_SECONDS = 8.0
TRANSACTION_SPARE_SECONDS = 2.0


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
    history: History | None = None
    directory: str = ""
    """The directory of the topology's file, with the files that were shipped with it."""


class Worker:
    """Runs until stopped. Owned by the thread that runs it."""

    def __init__(self, job: WorkerJob) -> None:
        plan = self.plan = job.plan
        self.job = job
        self.stopping = threading.Event()
        self._client = {**job.client, "bootstrap.servers": job.bootstrap}
        self._values = Values(allows_pickle=bool(value_of("topology.allow.pickle", plan.config)))
        self._frames = Frames(job.key, self._values)
        self._control = Control(topics.control_topic(plan.name), job.key, job.incarnation)
        self._states: dict[Place, TaskState] = {}
        self._local = LocalStores(plan, self._client, self._values)
        self._clock_start = time.time() - time.monotonic()
        self._record_clock = None if job.history is None else RecordClock(job.history)
        # A worker that was fenced must not write state, so state is written in transactions too.
        transactional = plan.guarantee == "exactly-once" or any(
            issubclass(spec.component, StatefulBolt) for spec in plan.components.values()
        )
        self._hang_seconds = value_of("topology.hang.timeout.secs", plan.config) or (
            TRANSACTION_HANG_SECONDS if transactional else HANG_SECONDS
        )
        self._lag = Lag(plan, value_of("topology.max.internal.lag.bytes", plan.config))
        self._output = Output(
            plan,
            self._client,
            self._frames,
            topics.transactional_id(plan.name, job.number) if transactional else None,
            self._lag,
            # A worker that hangs is restarted before its transaction times out.
            round((self._hang_seconds + TRANSACTION_SPARE_SECONDS) * 1000),
        )
        self._commit_seconds = value_of("topology.state.checkpoint.interval.ms", plan.config) / 1000
        self._commit_due = time.monotonic()
        self.engine = Engine(
            plan,
            self._output,
            self,
            tasks=job.placement[job.number],
            worker=job.number,
            state_of=partial(self._open_state, topics.state_topic),
            held_of=partial(self._open_state, topics.held_topic),
            load=self._lag.of,
            directory=job.directory,
            bootstrap=job.bootstrap,
        )
        self._deliveries = Deliveries(
            self.engine,
            self._output,
            max_fails=value_of("topology.max.fails", plan.config),
            ignores_failures=plan.guarantee == "none",
        )
        self._inputs = self._deliveries.inputs
        self._sampler = Sampler(
            (*self.engine.spouts.values(), *self.engine.bolts.values()),
            lambda sample: self._output.produce(topics.sample_topic(plan.name), value=sample),
        )
        self._consumer = Consumer(self._consumer_config())
        self._trimmer = Trimmer(self._client)
        self._backpressure = Backpressure(plan, self._consumer, self._lag, self.engine, self._inputs)
        self._reporter = Reporter(
            job.topology_id or plan.name,
            job.number,
            self._client,
            [*self.engine.spouts.values(), *self.engine.bolts.values()],
        )
        self._watchdog = Watchdog(
            self.engine, self._hang_seconds, self._reporter.report_failure, lambda: self._output.called_at
        )

    def _consumer_config(self) -> dict[str, Any]:
        return {
            **self._client,
            "group.id": topics.group_of(self.plan.name),
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            # Records that retention deleted before they were read: go on with the oldest there is.
            "auto.offset.reset": "earliest",
            # Records that wait in this process, whatever the number of partitions.
            "queued.max.messages.kbytes": PREFETCH_KILOBYTES,
            "fetch.max.bytes": PREFETCH_KILOBYTES * 1024,
            "fetch.error.backoff.ms": 50,
        }

    # Called by the engine

    def now(self) -> float:
        """Seconds since the epoch, as the clock stood when the worker began: it never goes back.

        A run over history has the time of its records.
        """
        if self._record_clock is not None:
            return self._record_clock.now()
        return self._clock_start + time.monotonic()

    def _open_state(self, topic_of: Callable[[str, str], str], component: str, task: int) -> TaskState:
        index = self.plan.tasks[component].index(task)
        place = (topic_of(self.plan.name, component), index)
        if place not in self._states:
            self._states[place] = TaskState(self._local.open(place))
        return self._states[place]

    # Life

    def run(self) -> None:
        """Run until `stopping` is set, then commit and close. An error is reported to the metrics topic."""
        self._watchdog.start()
        try:
            self._run()
        except Exception as error:
            self._reporter.report_failure("".join(traceback.format_exception(error)).rstrip())
            raise
        finally:
            self._watchdog.stop()
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
            self._commit_last()
        finally:
            self.engine.close()
            self._reporter.report(self.now())
            self._consumer.close()
            for state in self._states.values():
                state.close()

    def _assign(self) -> None:
        """Take up every input where it was committed last."""
        sources = sources_of(
            self.engine,
            self._frames,
            self._output,
            workers=len(self.job.placement),
            partitions_of=self._partitions_of,
        )
        wanted = [TopicPartition(*source.place) for source in sources]
        known = self._consumer.committed(wanted, SETUP_SECONDS) if wanted else []
        for source, found in zip(sources, known, strict=True):
            self._inputs[source.place] = self._new_input(source, found.offset)
        self._consumer.assign(
            [
                TopicPartition(self._control.topic, 0, OFFSET_BEGINNING),
                *(TopicPartition(*place, partition.position) for place, partition in self._inputs.items()),
            ]
        )
        # Nothing enters the topology before the control topic has been read.
        self._backpressure.apply(active=False)

    def _new_input(self, source: Source, committed: int) -> InputPartition:
        history, clock = self.job.history, self._record_clock
        if history is None or clock is None or source.is_internal:
            return InputPartition(source, committed if committed >= 0 else self._first_offset(source))
        start, end = history.range_of(source.place)
        partition = InputPartition(source, committed if committed >= 0 else start, end)
        if not partition.is_over:
            clock.add_source(source.place)
        return partition

    def _first_offset(self, source: Source) -> int:
        low, high = self._consumer.get_watermark_offsets(TopicPartition(*source.place), timeout=SETUP_SECONDS)
        return int(high if source.start == "latest" else low)

    def _partitions_of(self, spout: LogSpout) -> dict[str, int]:
        listed = self._consumer.list_topics(timeout=SETUP_SECONDS).topics
        if self.job.history is not None:
            # Partitions that were added since are not part of the range.
            ranges = self.job.history.ranges
            return {name: len(ranges[name]) for name in spout.topics_among(listed) if name in ranges}
        return {name: len(listed[name].partitions) for name in spout.topics_among(listed)}

    def _restore(self) -> None:
        for place, state in self._states.items():
            count = restore(self._consumer_config(), place, state, self._values)
            logger.info("%s-%d: restored %d changes", *place, count)

    def _follow_orders(self) -> None:
        if self._control.active and not self.engine.active:
            self.engine.activate()
        elif self.engine.active and not self._control.active:
            self.engine.deactivate()
        self._backpressure.apply(active=self.engine.active)
        self._sampler.follow(self._control.debug)

    # Running

    def _turn(self) -> None:
        self._follow_orders()
        self.engine.run_timers()
        messages = self._poll()
        try:
            for message in messages:
                if message.topic() == self._control.topic:
                    self._control.note(message)
                    continue
                if message.error() is not None:
                    self._note(message)
                    continue
                if self._record_clock is not None:
                    self._follow_records(self._record_clock, message)
                self._deliveries.begin(message)
                if self._deliveries.is_careful:
                    self._commit()
                    self._deliveries.end_care(message)
                elif time.monotonic() >= self._commit_due:
                    # Slow bolts must not keep a transaction open for a whole batch of records.
                    self._commit()
            if self._record_clock is not None:
                self._end_ranges(self._record_clock)
            asked = self.engine.ask_spouts()
            self.engine.run_queue()
            self._deliveries.handle_failures()
            self._send_frames()
            if self._is_commit_due(idle=not messages and not asked):
                self._commit()
        except Poisoned:
            self._abort()
        self._do_chores()

    def _follow_records(self, clock: RecordClock, message: Any) -> None:
        """Let time pass up to a record, unless it is beyond the range."""
        place = (message.topic(), message.partition())
        end = self._inputs[place].end
        if end is None or message.offset() < end:
            clock.note(place, message.timestamp()[1])
            self._advance(clock)

    def _advance(self, clock: RecordClock) -> None:
        """Let time pass up to the records: ticks and windows happen on time, in order."""
        target = clock.target
        if not clock.began:
            clock.set(target)
            self.engine.restart_timers()
        for _ in range(MOST_TICKS):
            moment = self.engine.next_timer()
            if moment is None or moment > target:
                break
            clock.set(moment)
            self.engine.run_timers()
            self.engine.run_queue()
        clock.set(target)

    def _end_ranges(self, clock: RecordClock) -> None:
        """Let the clock run on when partitions have been read to the end of their range."""
        ended = [part for part in self._inputs.values() if part.is_read and not part.is_over]
        if not ended:
            return
        for part in ended:
            clock.finish(part.place)
        self._advance(clock)
        for part in ended:
            part.is_over = True

    def _do_chores(self) -> None:
        now = time.monotonic()
        self._backpressure.update(now)
        self._trimmer.trim(part for part in self._inputs.values() if part.source.is_internal)
        if now >= self._reporter.due:
            for laggard in self._lag.laggards(now):
                self._backpressure.report(laggard, self.job.placement)
            self._reporter.report(self.now(), self._lag.by_task())
            check_memory(self.job.number, value_of("topology.worker.max.heap.size.mb", self.plan.config))

    def _poll(self) -> list[Any]:
        """The records that are there, waiting for the first of them as long as nothing else is to be done."""
        if len(self.engine.calls) >= MOST_CALLS:
            # Enough is under way outside the loop.
            time.sleep(SPOUT_REST_SECONDS)
            return []
        first = self._consumer.poll(self._patience())
        if first is None:
            return []
        return [first] if self._deliveries.is_careful else [first, *self._consumer.consume(POLL_MESSAGES, 0)]

    def _patience(self) -> float:
        if self.engine.has_own_spouts or self.engine.calls:
            return SPOUT_REST_SECONDS
        if self._has_uncommitted():
            # Nothing more to read means a commit at once.
            return 0.0
        moment = self.engine.next_timer()
        return IDLE_SECONDS if moment is None else max(min(moment - self.now(), IDLE_SECONDS), 0.0)

    def _note(self, message: Any) -> None:
        """An event instead of a record: the end of a partition, or an error."""
        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            self._inputs[message.topic(), message.partition()].reached_end(message.offset())
        elif error.fatal() or not error.retriable():
            raise KafkaException(error)

    def _send_frames(self) -> None:
        clock = self._record_clock
        self._output.send_frames(0 if clock is None else round(clock.now() * 1000))

    # Committing

    def _has_uncommitted(self) -> bool:
        return self._output.in_transaction or any(
            partition.offset_to_commit() is not None for partition in self._inputs.values()
        )

    def _is_commit_due(self, *, idle: bool) -> bool:
        if not self._has_uncommitted():
            return False
        return (idle and not self.engine.calls) or time.monotonic() >= self._commit_due

    def _commit(self) -> None:
        """Make everything last: outputs, states, and how far the inputs are done.

        Raises Poisoned if something fails that is finished for the commit.
        """
        if self._output.is_transactional:
            # State must not change while it is written.
            self.engine.finish()
            self._deliveries.handle_failures()
        self._send_frames()
        offsets = [
            offset
            for partition in self._inputs.values()
            if (offset := partition.offset_to_commit()) is not None
        ]
        if self._output.is_transactional:
            self._check_nothing_is_held()
            self.engine.before_commit()
            self._write_states()
            self._output.commit(offsets, self._consumer.consumer_group_metadata())
        else:
            self._output.flush()
            if offsets:
                self._consumer.commit(offsets=offsets, asynchronous=False)
        for offset in offsets:
            self._inputs[offset.topic, offset.partition].committed = offset.offset
        for place, state in self._states.items():
            state.commit(self._output.positions.pop(place, None))
        self._commit_due = time.monotonic() + self._commit_seconds

    def _commit_last(self) -> None:
        """Commit what is done; what fails now is read again by the next worker."""
        self.engine.finish()
        try:
            self._commit()
        except Poisoned as failure:
            logger.warning("the last commit is undone: %s", failure)
            self._output.abort()

    def _write_states(self) -> None:
        encode = self._values.encode
        for place, state in self._states.items():
            changes = [
                (encode(key), None if deleted else encode(value)) for key, value, deleted in state.changes()
            ]
            if changes:
                self._output.write_changes(place, changes)

    def _check_nothing_is_held(self) -> None:
        """A tuple may outlive a commit only as state: what a bolt holds would be lost or processed twice."""
        if self.plan.guarantee != "exactly-once":
            return
        if any(partition.under_way for partition in self._inputs.values()):
            holders = " and ".join(self.engine.holders()) or "a bolt"
            raise TopologyError(
                f"{self.plan.name} is exactly-once, but {holders} keeps "
                "tuples without acking them; keep them in the state of a StatefulBolt, or use "
                "guarantee = 'at-least-once'"
            )

    def _abort(self) -> None:
        """Undo everything since the last commit, and read it again one record at a time."""
        offsets = self._deliveries.rewind()
        self._output.abort()
        for state in self._states.values():
            state.abort()
        self.engine.reset()
        for place, offset in offsets.items():
            self._consumer.seek(TopicPartition(*place, offset))
