"""Runs a pipeline: starts its queries, sees that they go on, and stops them between two batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.pipelines import (
    checkpoint,
    codecs,
    dead_letters,
    failures,
    modes,
    offsets,
    reading,
    writing,
)
from millrace.pipelines.checkpoint import Fingerprint
from millrace.pipelines.errors import PipelineError
from millrace.pipelines.exactly_once import ExactlyOnce
from millrace.pipelines.files import Directory
from millrace.pipelines.log import LogTopic
from millrace.pipelines.pipeline import ONLY_OUTPUT, Pipeline
from millrace.pipelines.plans import Plan
from millrace.pipelines.queries import Query, end_after_batch, failed, process_all
from millrace.pipelines.query_settings import applied

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.query import StreamingQueryProgress

    WriteBatch = Callable[[DataFrame, int], None]

LOOK_SECONDS = 0.2
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 5.0
STOP_SECONDS = 300

# Real-time mode reports once a batch; this is how old the lag that others see may get.
REAL_TIME_BATCH = "5 seconds"


class Run:
    """A pipeline's queries on a session, supervised by a thread of its own.

    `start` are offsets by topic and partition that go before the inputs' own, for a run without a checkpoint;
    `outputs` are topics that replace declared ones; `name` replaces the pipeline's; `around_batches` wraps
    what writes the batches of a query, which it gets with the query's name.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        bootstrap: str,
        *,
        checkpoints: str | Path,
        available_now: bool = False,
        start: Mapping[str, Mapping[int, int]] | None = None,
        outputs: Mapping[str, LogTopic] | None = None,
        name: str | None = None,
        around_batches: Callable[[str, WriteBatch], WriteBatch] | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.name = name or pipeline.name
        self.bootstrap = bootstrap
        self.planned: list[Query] = []
        self.waiting_for_broker: bool = False
        self.on_progress: Callable[[Any, int | None], None] | None = None
        """Is told of every batch, and how many records its sink has written so far, if that counts them."""
        self.notes: list[str] = []
        """What the user should know, such as a mode that Spark has refused."""
        self._spark = spark
        self._checkpoints = str(checkpoints)
        self._available_now = available_now
        self._start = start
        self._outputs = {**pipeline.outputs, **(outputs or {})}
        self._around = around_batches
        self._failure: PipelineError | None = None
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._lock = threading.RLock()
        self._supervisor: threading.Thread | None = None
        self._commits: offsets.Commits | None = None
        self._progress: offsets.Progress | None = None
        self._locks: list[checkpoint.Lock] = []

    # Life

    @property
    def queries(self) -> list[StreamingQuery]:
        """Spark's queries, the outputs' first."""
        return [one.running for one in self.planned if one.running is not None]

    def plan(self) -> list[Query]:
        """What the run consists of, without starting anything."""
        frames = {
            name: reading.stream(self._spark, topic, self.bootstrap, start=self._starts(topic))
            for name, topic in self.pipeline.inputs.items()
        }
        planned: list[Query] = []
        for output, frame in self.pipeline.apply(frames).items():
            topic = self._outputs[output]
            name = self.name if output == ONLY_OUTPUT else f"{self.name}.{output}"
            encoded = codecs.encode(frame, topic)
            plan = Plan(encoded)
            choice = modes.choose(
                self.pipeline,
                encoded,
                plan=plan,
                available_now=self._available_now,
                wrapped=self._around is not None,
                tasks=self._tasks(read := self._topics(plan)),
                taken=sum(one.choice.slots for one in planned),
            )
            planned.append(Query(name, topic, encoded, plan, choice, self.pipeline.delivery, read))
        for name, topic in self.pipeline.inputs.items():
            if dead_letters.wanted(topic):
                letters = dead_letters.stream(
                    self._spark, topic, self.bootstrap, self.name, start=self._starts(topic)
                )
                planned.append(
                    Query(
                        f"{self.name}.dead-letters.{name}",
                        dead_letters.output(topic),
                        letters,
                        Plan(letters),
                        modes.COMPANION,
                        self.pipeline.delivery,
                        reading.topics(topic, self.bootstrap),
                    )
                )
        return planned

    def location(self, query: str) -> str:
        """The checkpoint of one of its queries."""
        return checkpoint.location(self._checkpoints, query)

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return self._ended.is_set()

    def start(self) -> None:
        """Start the queries; waits for a broker that is away."""
        try:
            self._begin()
        except Exception as error:
            if not self._stopping.is_set():
                self._failure = failures.explained(error, self.name, self.bootstrap)
            self._finish()
            if self._failure is not None:
                raise self._failure from error
            return
        except BaseException:
            self._finish()
            raise
        self._supervisor = threading.Thread(
            target=self._supervise, name=f"millrace-run-{self.name}", daemon=True
        )
        self._supervisor.start()

    def stop(self, *, now: bool = False) -> None:
        """End after the batches that are being worked on; `now` leaves them to the next run."""
        self._stopping.set()
        with self._lock:
            for query in self.queries:
                if now:
                    query.stop()
                else:
                    end_after_batch(self._spark, query)
        supervisor = self._supervisor
        if supervisor is not None and threading.current_thread() is not supervisor:
            supervisor.join(STOP_SECONDS)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the run ends, by `stop` or a failure or because all is done; whether it has ended."""
        ended = self._ended.wait(timeout)
        if ended and self._failure is not None:
            raise self._failure
        return ended

    def join(self) -> None:
        """Wait until nothing of it runs any more, however it ended."""
        self._ended.wait(STOP_SECONDS)

    def process_all_available(self) -> None:
        """Wait until everything that is in the inputs now is in the outputs."""
        for one in self.planned:
            while not self._ended.is_set():
                query = one.running
                try:
                    if query is not None:
                        process_all(one, query, self.bootstrap)
                        break
                except Exception:
                    # The supervisor decides what becomes of it: another try, or the end.
                    pass
                self._ended.wait(LOOK_SECONDS)
        if self._failure is not None:
            raise self._failure

    # Starting

    def _starts(self, topic: LogTopic) -> dict[str, Mapping[int, int]] | None:
        """Of the offsets to begin with those that are of this input."""
        if self._start is None or topic.table:
            return None
        names = reading.topics(topic, self.bootstrap)
        return {name: self._start[name] for name in names if name in self._start} or None

    def _begin(self) -> None:
        self.planned = self._patiently(self.plan)
        names = [one.name for one in self.planned]
        if self.pipeline.mode == "real-time":
            self.notes += [
                f"{one.name} runs in micro-batches: {one.choice.why}"
                for one in self.planned
                if one.choice.mode != "real-time" and one.choice is not modes.COMPANION
            ]
        for name in names:
            self._locks.append(checkpoint.lock(self._checkpoints, name))
        for one in self.planned:
            self._patiently(partial(self._check, one))
        self._commits = offsets.Commits(self.bootstrap)
        self._progress = offsets.Progress(self._commits, names, self._note)
        self._spark.streams.addListener(self._progress)
        for one in self.planned:
            self._start_query(one)

    def _check(self, one: Query) -> None:
        """Refuse a checkpoint that does not fit before data is touched."""
        now = Fingerprint.of(
            one.plan,
            one.topic.name,
            one.delivery,
            one.choice.mode,
            self._spark.conf.get("spark.sql.shuffle.partitions") or "",
            one.topics,
            self.bootstrap,
        )
        may_lose = any(
            topic.options.get("failOnDataLoss", "").lower() == "false"
            for topic in self.pipeline.inputs.values()
        )
        checkpoint.check(self._spark, self._checkpoints, one.name, now, self.bootstrap, may_lose=may_lose)

    def _topics(self, plan: Plan) -> list[str]:
        """The topics that a query reads."""
        wanted = set(plan.sources)
        inputs = [topic for topic in self.pipeline.inputs.values() if topic.name in wanted]
        return sorted({name for topic in inputs for name in reading.topics(topic, self.bootstrap)})

    def _tasks(self, topics: list[str]) -> int:
        """How many tasks read them."""
        return sum(map(len, offsets.partitions(offsets.admin(self.bootstrap), topics).values()))

    def _start_query(self, one: Query) -> None:
        with self._lock:
            if self._stopping.is_set():
                return
            settings = {**one.choice.settings, **self.pipeline.settings}
            with applied(self._spark, settings):
                one.running = self._writer(one).start()

    def _writer(self, one: Query) -> Any:
        location = checkpoint.location(self._checkpoints, one.name)
        writer = (
            one.frame.writeStream.queryName(one.name)
            .outputMode(one.choice.output_mode)
            .option("checkpointLocation", location)
        )
        if one.delivery == "exactly-once":
            one.sink = ExactlyOnce(one.name, one.topic, self.bootstrap)
            writer = writer.foreachBatch(self._wrapped(one, one.sink))
        elif self._around is not None:
            topic = one.topic
            writer = writer.foreachBatch(
                self._wrapped(one, lambda frame, _: writing.write_batch(frame, topic, self.bootstrap))
            )
        else:
            writer = writing.at_least_once(writer, self.bootstrap, one.topic)
            if one.choice.is_async:
                writer = writer.options(**modes.ASYNC_OPTIONS)
        return writer.trigger(**self._trigger(one))

    def _wrapped(self, one: Query, write: WriteBatch) -> WriteBatch:
        return write if self._around is None else self._around(one.name, write)

    def _trigger(self, one: Query) -> dict[str, Any]:
        if self._available_now:
            return {"availableNow": True}
        if one.choice.mode == "real-time":
            return {"realTime": self.pipeline.trigger or REAL_TIME_BATCH}
        return {"processingTime": self.pipeline.trigger or "0 seconds"}

    # Supervising

    def _note(self, progress: StreamingQueryProgress) -> None:
        for one in self.planned:
            if one.name == progress.name:
                one.progress, one.restarts = progress, 0
                one.reached = offsets.reached(progress) or one.reached
                if self.on_progress is not None:
                    self.on_progress(progress, one.sink.written if one.sink is not None else None)

    def _supervise(self) -> None:
        try:
            while not self._all_ended():
                time.sleep(LOOK_SECONDS)
                for one in self.planned:
                    self._look_after(one)
        except PipelineError as error:
            self._failure = error
        except Exception as error:
            self._failure = failures.explained(error, self.name, self.bootstrap)
        finally:
            self._finish()

    def _all_ended(self) -> bool:
        return all(one.running is None or not one.running.isActive for one in self.planned) and (
            self._stopping.is_set() or all(not failed(one) for one in self.planned)
        )

    def _look_after(self, one: Query) -> None:
        if one.running is None or one.running.isActive or self._stopping.is_set():
            return
        error = one.running.exception()
        if error is None:
            return
        if one.choice.mode == "real-time" and one.progress is None and failures.is_refusal(error):
            one.choice = modes.refused(one.choice, one.plan, failures.first_line(failures.text_of(error)))
            self.notes.append(f"{one.name} runs in micro-batches: {one.choice.why}")
        elif failures.is_about_connection(error):
            self.waiting_for_broker = True
            self._stopping.wait(min(FIRST_PAUSE_SECONDS * 2**one.restarts, LONGEST_PAUSE_SECONDS))
            one.restarts += 1
            self._patiently(lambda: offsets.cluster_id(self.bootstrap))
        else:
            raise self._explained(one, error)
        self._start_query(one)

    def _explained(self, one: Query, error: BaseException) -> PipelineError:
        log = Directory(self._spark, self._checkpoints)
        name = f"{one.name}.log"
        log.write(name, failures.text_of(error) + "\n")
        return failures.explained(
            error, one.name, self.bootstrap, checkpoint.location(self._checkpoints, name)
        )

    def _patiently(self, action: Callable[[], Any]) -> Any:
        """Do something that needs the broker, as often as it is away."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                result = action()
            except Exception as error:
                if not failures.is_about_connection(error):
                    raise
                self.waiting_for_broker = True
                if self._stopping.wait(pause):
                    raise
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            else:
                self.waiting_for_broker = False
                return result

    def _finish(self) -> None:
        for query in self.queries:
            end_after_batch(self._spark, query)
        for query in self.queries:
            # How it ended is known; what counts is that its last batch is through.
            with suppress(Exception):
                query.awaitTermination(STOP_SECONDS)
        self._release()
        self._ended.set()

    def _release(self) -> None:
        if self._progress is not None:
            self._spark.streams.removeListener(self._progress)
            # What the listener has not been told yet: events come a little after the batch.
            for query in self.queries:
                if (last := query.lastProgress) is not None:
                    self._progress.record(last)
            self._progress = None
        if self._commits is not None:
            self._commits.close()
            self._commits = None
        while self._locks:
            self._locks.pop().release()
