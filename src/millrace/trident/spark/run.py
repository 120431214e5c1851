"""A run of a topology: its query, its checkpoint, and its restarts when the log or a database is away."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.pipelines.errors import PipelineError
from millrace.pipelines.kafka.group_commits import GroupCommits
from millrace.pipelines.run import checkpoint, failures
from millrace.pipelines.run.progress_listener import ProgressListener
from millrace.pipelines.run.query import end_after_batch
from millrace.pipelines.run.query_settings import applied
from millrace.pipelines.sink.exactly_once import ADAPTIVE
from millrace.pipelines.spark.directory import Directory
from millrace.pipelines.spark.query_plan import Plan
from millrace.pipelines.topics.names import topic_names
from millrace.trident.errors import StoreUnavailable, TridentError
from millrace.trident.model.explanation import describe
from millrace.trident.model.topology import TridentTopology
from millrace.trident.spark.batch_program import BatchProgram, check, read_sources
from millrace.trident.state.ownership import read_owner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

POLL_SECONDS = 0.1
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 5.0
STOP_SECONDS = 300

_OWN_ERROR = re.compile(r"millrace\.(?:trident|pipelines)\.errors\.(\w+): (.*)")
WrapBatches = Callable[[Callable[["DataFrame", int], None]], Callable[["DataFrame", int], None]]


class TridentRun:
    """The query of a topology on a Spark session. One thread may use it; `stop` may come from any."""

    def __init__(
        self,
        topology: TridentTopology,
        spark: SparkSession,
        bootstrap: str,
        *,
        checkpoints: str | Path,
        name: str | None = None,
        available_now: bool = False,
        adopt: bool = False,
        around_batches: WrapBatches | None = None,
        on_wait: Callable[[str], None] = lambda reason: None,
    ) -> None:
        check(topology, spark.sparkContext.master or "")
        self.name = name or topology.name
        self._topology = topology
        self._spark = spark
        self._bootstrap = bootstrap
        self._checkpoints = str(checkpoints)
        self._available_now = available_now
        self._on_wait = on_wait
        self._program = BatchProgram(topology, self.name, bootstrap, adopt=adopt)
        self._write = self._program.__call__ if around_batches is None else around_batches(self._program)
        self._adopt = adopt
        self._stopping = threading.Event()
        self.query: StreamingQuery | None = None

    def run(self) -> None:
        """Run until stopped or, with `available_now`, until everything that was in the log is processed."""
        lock = checkpoint.lock(self._checkpoints, self.name)
        commits = GroupCommits(self._bootstrap)
        listener = ProgressListener(commits, [self.name])
        try:
            self._check_owners()
            self._check_checkpoint()
            self._spark.streams.addListener(listener)
            self._supervise()
        except PipelineError:
            raise
        except Exception as error:
            raise explained(error, self.name, self._bootstrap) from error
        finally:
            self._spark.streams.removeListener(listener)
            if self.query is not None and (last := self.query.lastProgress) is not None:
                listener.record(last)
            commits.close()
            self._program.close()
            lock.release()

    def stop(self, *, now: bool = False) -> None:
        """End after the current batch; `now` aborts it, and the next run repeats it."""
        self._stopping.set()
        query = self.query
        if query is not None:
            if now:
                query.stop()
            else:
                end_after_batch(self._spark, query)

    # Starting

    @property
    def location(self) -> str:
        """The checkpoint of the query."""
        return checkpoint.location(self._checkpoints, self.name)

    def _check_owners(self) -> None:
        """Refuse states of another query before any data is touched, and databases that do not answer."""
        saved = Directory(self._spark, self.location).read("metadata")
        query = json.loads(saved)["id"] if saved else None
        for spec in self._topology.written_states():
            store = spec.store(self._bootstrap)
            owner = read_owner(store, spec.name, spec.kind)
            store.close()
            if owner is None or owner.owner is None or self._adopt or spec.kind == "non-transactional":
                continue
            if owner.queries[owner.owner] != query:
                raise TridentError(
                    f"the state {spec.name} belongs to another query than the checkpoint {self.location};"
                    " continue from the former checkpoint, use another state, or add to it with --adopt-state"
                )

    def _check_checkpoint(self) -> None:
        topics = sorted(
            {name for source in self._topology.sources for name in topic_names(source.topic, self._bootstrap)}
        )
        fingerprint = checkpoint.Fingerprint.of(
            Plan(self._frame()),
            "; ".join(describe(sink) for sink in self._topology.sinks),
            "exactly-once",
            "micro-batch",
            self._spark.conf.get("spark.sql.shuffle.partitions") or "",
            topics,
            self._bootstrap,
        )
        checkpoint.check(self._spark, self._checkpoints, self.name, fingerprint, self._bootstrap)

    def _frame(self) -> DataFrame:
        return read_sources(self._spark, self._topology, self._bootstrap)

    def _start(self) -> StreamingQuery:
        trigger: dict[str, Any] = {"processingTime": self._topology.trigger or "0 seconds"}
        if self._available_now:
            trigger = {"availableNow": True}
        writer = (
            self._frame()
            .writeStream.queryName(self.name)
            .option("checkpointLocation", self.location)
            .foreachBatch(self._write)
            .trigger(**trigger)
        )
        # A batch that comes again must have the same tasks: the exactly-once sink relies on it.
        with applied(self._spark, {ADAPTIVE: "false"}):
            return writer.start()

    # Watching

    def _supervise(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                self.query = self._start()
                while self.query.isActive:
                    time.sleep(POLL_SECONDS)
                failure: BaseException | None = self.query.exception()
            except Exception as error:
                failure = error
            if failure is None:
                return
            if not is_temporary(failure) or self._stopping.is_set():
                raise failure
            if time.monotonic() - began > 2 * LONGEST_PAUSE_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            self._on_wait(str(explained(failure, self.name, self._bootstrap)))
            self._stopping.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        if self.query is not None:
            with suppress(Exception):
                self.query.awaitTermination(STOP_SECONDS)


def is_temporary(error: BaseException) -> bool:
    """Whether the log or a database was away, so that another attempt may succeed."""
    if found := _OWN_ERROR.search(failures.text_of(error)):
        return found[1] in (StoreUnavailable.__name__, "BrokerUnavailable")
    return failures.is_about_connection(error)


def explained(error: BaseException, name: str, bootstrap: str) -> PipelineError:
    """Explain an error that ended the query in one line."""
    if isinstance(error, PipelineError):
        return error
    text = failures.text_of(error)
    if found := _OWN_ERROR.search(text):
        kind = StoreUnavailable if found[1] == StoreUnavailable.__name__ else TridentError
        return kind(f"{name}: {found[2]}")
    return failures.explained(error, name, bootstrap)
