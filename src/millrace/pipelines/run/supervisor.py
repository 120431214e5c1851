"""Supervises the queries of a run: waits for the broker, restarts queries, falls back to micro-batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from millrace.pipelines.errors import PipelineError
from millrace.pipelines.kafka import offsets
from millrace.pipelines.run import execution_mode, failures
from millrace.pipelines.run.plan import RunPlan
from millrace.pipelines.run.query import Query, end_after_batch
from millrace.pipelines.run.query_settings import applied
from millrace.pipelines.run.query_writer import stream_writer
from millrace.pipelines.spark.directory import Directory

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

T = TypeVar("T")

POLL_SECONDS = 0.2
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 5.0
STOP_SECONDS = 300


class Supervisor:
    """Starts and restarts the queries of a run. Only `stop` may be called from another thread."""

    def __init__(self, plan: RunPlan) -> None:
        self.queries: list[Query] = []
        self.waiting_for_broker = False
        self.notes: list[str] = []
        """Facts that the user should know, such as a mode that Spark refused."""
        self._plan = plan
        self._stopping = threading.Event()
        self._starting = threading.RLock()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def handles(self) -> list[StreamingQuery]:
        """Spark's handles of the started queries."""
        return [query.handle for query in self.queries if query.handle is not None]

    # Starting

    def plan_queries(self) -> None:
        """Plan the queries; waits while the broker is unavailable."""
        self.queries = self.retry(self._plan.queries)
        if self._plan.pipeline.mode == "real-time":
            self.notes += [
                f"{query.name} runs in micro-batches: {query.execution.reason}"
                for query in self.queries
                if query.execution.mode != "real-time" and query.execution is not execution_mode.COMPANION
            ]

    def check_checkpoints(self) -> None:
        """Refuse checkpoints that do not fit; waits while the broker is unavailable."""
        for query in self.queries:
            self.retry(partial(self._plan.check_checkpoint, query))

    def start(self) -> None:
        """Start all queries."""
        for query in self.queries:
            self._start(query)

    def _start(self, query: Query) -> None:
        with self._starting:
            if not self.is_stopping:
                settings = {**query.execution.settings, **self._plan.pipeline.settings}
                with applied(self._plan.spark, settings):
                    query.handle = stream_writer(self._plan, query).start()

    def retry(self, action: Callable[[], T]) -> T:
        """Repeat an action while the broker is unavailable; raise if the run is stopped."""
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

    # Watching

    def watch(self) -> None:
        """Restart queries that lose the broker until all have ended; raise the error of a failed query."""
        while not self._have_all_ended():
            time.sleep(POLL_SECONDS)
            for query in self.queries:
                if not self.is_stopping and (error := query.failure) is not None:
                    self._restart(query, error)

    def _have_all_ended(self) -> bool:
        if any(query.is_active for query in self.queries):
            return False
        return self.is_stopping or all(query.failure is None for query in self.queries)

    def _restart(self, query: Query, error: BaseException) -> None:
        is_new = query.execution.mode == "real-time" and query.progress is None
        if is_new and failures.is_refusal(error):
            reason = failures.first_line(failures.text_of(error))
            query.execution = execution_mode.after_refusal(query.execution, query.plan, reason)
            self.notes.append(f"{query.name} runs in micro-batches: {query.execution.reason}")
        elif failures.is_about_connection(error):
            self.waiting_for_broker = True
            self._stopping.wait(min(FIRST_PAUSE_SECONDS * 2**query.restarts, LONGEST_PAUSE_SECONDS))
            query.restarts += 1
            self.retry(lambda: offsets.cluster_id(self._plan.bootstrap))
        else:
            raise self._logged(query, error)
        self._start(query)

    def _logged(self, query: Query, error: BaseException) -> PipelineError:
        """Write the whole error to a file next to the checkpoints; return one line for the user."""
        log = f"{query.name}.log"
        Directory(self._plan.spark, self._plan.checkpoints).write(log, failures.text_of(error) + "\n")
        return failures.explained(error, query.name, self._plan.bootstrap, self._plan.location(log))

    # Stopping

    def stop(self, *, now: bool = False) -> None:
        """End the queries after their batches; `now` aborts the batches."""
        self._stopping.set()
        with self._starting:
            for handle in self.handles:
                if now:
                    handle.stop()
                else:
                    end_after_batch(self._plan.spark, handle)

    def finish(self) -> None:
        """End all queries after their batches and wait for them."""
        for handle in self.handles:
            end_after_batch(self._plan.spark, handle)
        for handle in self.handles:
            # Its error is known; only the end of its last batch matters here.
            with suppress(Exception):
                handle.awaitTermination(STOP_SECONDS)
