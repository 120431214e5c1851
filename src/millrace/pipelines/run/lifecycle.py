"""A run of a pipeline, from its start to its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millrace.pipelines.decorator import Pipeline
from millrace.pipelines.errors import PipelineError
from millrace.pipelines.kafka.group_commits import GroupCommits
from millrace.pipelines.run import checkpoint, failures
from millrace.pipelines.run.options import RunOptions
from millrace.pipelines.run.plan import RunPlan
from millrace.pipelines.run.progress_listener import ProgressListener, reached
from millrace.pipelines.run.query import Query, process_all
from millrace.pipelines.run.supervisor import POLL_SECONDS, STOP_SECONDS, Supervisor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.query import StreamingQueryProgress


class Run:
    """The queries of a pipeline on a Spark session, supervised by a thread of the run.

    >>> run = Run(words, spark, "localhost:9092", RunOptions(checkpoints="millrace-checkpoints"))
    """

    def __init__(self, pipeline: Pipeline, spark: SparkSession, bootstrap: str, options: RunOptions) -> None:
        self.pipeline = pipeline
        self.bootstrap = bootstrap
        self.on_progress: Callable[[Any, int | None], None] | None = None
        """Called with every batch, and the number of records its sink has written so far, if it counts."""
        self._plan = RunPlan(pipeline, spark, bootstrap, options)
        self._supervisor = Supervisor(self._plan)
        self._failure: PipelineError | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._commits: GroupCommits | None = None
        self._listener: ProgressListener | None = None
        self._locks: list[checkpoint.Lock] = []

    @property
    def name(self) -> str:
        return self._plan.name

    @property
    def planned(self) -> list[Query]:
        """The queries of the run, those of outputs first; empty before the start."""
        return self._supervisor.queries

    @property
    def queries(self) -> list[StreamingQuery]:
        """Spark's handles of the started queries."""
        return self._supervisor.handles

    @property
    def waiting_for_broker(self) -> bool:
        return self._supervisor.waiting_for_broker

    @property
    def notes(self) -> list[str]:
        """Facts that the user should know, such as a mode that Spark refused."""
        return self._supervisor.notes

    @property
    def ended(self) -> bool:
        """Whether nothing of the run is active any more."""
        return self._ended.is_set()

    def plan(self) -> list[Query]:
        """Plan the queries without starting them."""
        return self._plan.queries()

    def location(self, query: str) -> str:
        """The checkpoint of a query."""
        return self._plan.location(query)

    def start(self) -> None:
        """Start the queries; waits while the broker is unavailable."""
        try:
            self._begin()
        except Exception as error:
            if not self._supervisor.is_stopping:
                self._failure = failures.explained(error, self.name, self.bootstrap)
            self._finish()
            if self._failure is not None:
                raise self._failure from error
            return
        except BaseException:
            self._finish()
            raise
        self._thread = threading.Thread(target=self._watch, name=f"millrace-run-{self.name}", daemon=True)
        self._thread.start()

    def stop(self, *, now: bool = False) -> None:
        """End after the current batches; `now` aborts them, and the next run repeats them."""
        self._supervisor.stop(now=now)
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join(STOP_SECONDS)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of the run and return whether it has ended; raise the error that ended it."""
        ended = self._ended.wait(timeout)
        if ended and self._failure is not None:
            raise self._failure
        return ended

    def join(self) -> None:
        """Wait until nothing of the run is active any more, without raising its error."""
        self._ended.wait(STOP_SECONDS)

    def process_all_available(self) -> None:
        """Wait until the outputs reflect everything that the inputs hold now."""
        for query in self.planned:
            while not self._ended.is_set():
                handle = query.handle
                try:
                    if handle is not None:
                        process_all(query, handle, self.bootstrap)
                        break
                except Exception:
                    # The supervisor decides whether the query is restarted or the run ends.
                    pass
                self._ended.wait(POLL_SECONDS)
        if self._failure is not None:
            raise self._failure

    def _begin(self) -> None:
        self._supervisor.plan_queries()
        names = [query.name for query in self.planned]
        for name in names:
            self._locks.append(checkpoint.lock(self._plan.checkpoints, name))
        self._supervisor.check_checkpoints()
        self._commits = GroupCommits(self.bootstrap)
        self._listener = ProgressListener(self._commits, names, self._record)
        self._plan.spark.streams.addListener(self._listener)
        self._supervisor.start()

    def _watch(self) -> None:
        try:
            self._supervisor.watch()
        except Exception as error:
            self._failure = failures.explained(error, self.name, self.bootstrap)
        finally:
            self._finish()

    def _record(self, progress: StreamingQueryProgress) -> None:
        for query in self.planned:
            if query.name == progress.name:
                query.progress, query.restarts = progress, 0
                query.reached = reached(progress) or query.reached
                if self.on_progress is not None:
                    self.on_progress(progress, query.sink.written if query.sink is not None else None)

    def _finish(self) -> None:
        self._supervisor.finish()
        if self._listener is not None:
            self._plan.spark.streams.removeListener(self._listener)
            # Spark delivers events a little after the batch: record those not delivered yet.
            for handle in self.queries:
                if (last := handle.lastProgress) is not None:
                    self._listener.record(last)
            self._listener = None
        if self._commits is not None:
            self._commits.close()
            self._commits = None
        while self._locks:
            self._locks.pop().release()
        self._ended.set()
