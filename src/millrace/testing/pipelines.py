"""Runs a pipeline in a test: records in, records out, and crashes where the test wants them.

def test_words_are_counted(run_pipeline):
    output = run_pipeline(words, lines=["to be", ABORT, "or not to be"])
    assert output.newest["be"] == {"word": "be", "count": 2}
"""

from __future__ import annotations

import contextlib
import enum
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from millrace.pipelines.decorator import ONLY_OUTPUT, Pipeline
from millrace.pipelines.errors import PipelineError
from millrace.pipelines.spark import workers
from millrace.testing.records import (
    Output,
    Record,
    create_topics,
    end_offsets,
    read_records,
    write_records,
)

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

    WriteBatch = Callable[[DataFrame, int], None]

__all__ = ["ABORT", "PAUSE", "Mark", "Output", "Record", "run_pipeline", "spark_session"]


# Loggers of Spark that report a failed query.
FAILURE_LOGGERS = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution.streaming",
)


class Mark(enum.Enum):
    """An event between the records of an input."""

    PAUSE = "the pipeline processes the records before the mark, and stops"
    BEFORE_WRITING = "the pipeline crashes after reading, before writing"
    WHILE_WRITING = "the pipeline crashes when one task has written a part, and others perhaps everything"
    AFTER_WRITING = "the pipeline crashes after writing, before its checkpoint records it"


PAUSE = Mark.PAUSE
ABORT = Mark.AFTER_WRITING


class HasBootstrap(Protocol):
    """A broker of `millrace.testing`, or another object with an address."""

    @property
    def bootstrap(self) -> str: ...


@contextlib.contextmanager
def spark_session() -> Iterator[SparkSession]:
    """The small session of the fixture `millrace_spark`; started if there is none.

    It runs on this machine, unless MILLRACE_MASTER names another master.
    """
    from millrace.pipelines.spark.session import MASTER_VARIABLE, is_running, session

    # Tests end before optimized code would pay off.
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    settings = {
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": quick,
        "spark.executor.extraJavaOptions": quick,
    }
    is_mine = not is_running()
    master = os.environ.get(MASTER_VARIABLE, "local[2]")
    spark = session("tests", master=master, settings=settings)
    _quieten(spark)
    try:
        yield spark
    finally:
        if is_mine:
            spark.stop()


def _quieten(spark: SparkSession) -> None:
    """Silence reports of failed queries: the error that the test gets has the same information."""
    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
    from millrace.pipelines.spark.gateway import jvm

    log4j = jvm(spark).org.apache.logging.log4j
    for logger in FAILURE_LOGGERS:
        log4j.core.config.Configurator.setLevel(logger, log4j.Level.OFF)


def run_pipeline(
    pipeline: Pipeline,
    spark: SparkSession,
    broker: HasBootstrap | str,
    directory: Path | None = None,
    /,
    **inputs: Iterable[Any],
) -> Any:
    """Write records to the inputs of a pipeline, run it over all of them, and return its output.

    Records are dicts for JSON, else str or bytes; a `Record` adds a key, a time, headers or a partition. The
    records before a mark are processed first: normally (PAUSE), or with a crash (ABORT, or another `Mark`)
    after which the pipeline resumes from its checkpoint.

    The result is an `Output` (a list of decoded values), or a dict of them if there are several outputs.
    Checkpoints are kept in the directory, and stay there if the pipeline fails.
    """
    __tracebackhide__ = True
    bootstrap = broker if isinstance(broker, str) else broker.bootstrap
    rounds = list(_rounds(pipeline, inputs))
    topics = [*pipeline.inputs.values(), *pipeline.outputs.values()]
    create_topics(
        bootstrap, [name for topic in topics if not topic.pattern for name in topic.name.split(",")]
    )
    before = {name: end_offsets(bootstrap, topic) for name, topic in pipeline.outputs.items()}
    workers.share_imports(spark)
    workers.pickle_by_value(pipeline.function.__module__)
    crashes = _Crashes()
    checkpoints = Path(tempfile.mkdtemp(prefix="millrace-checkpoints-", dir=directory))
    for number, fed in enumerate(rounds):
        written = sum(
            write_records(bootstrap, pipeline.inputs[name], records) for name, records in fed.records.items()
        )
        if written or crashes.happened or number == 0:
            crashes.prepare(fed.end, is_new=written > 0)
            _run(pipeline, spark, bootstrap, checkpoints, crashes)
    shutil.rmtree(checkpoints, ignore_errors=True)
    outputs = {name: read_records(bootstrap, topic, before[name]) for name, topic in pipeline.outputs.items()}
    return outputs[ONLY_OUTPUT] if outputs.keys() == {ONLY_OUTPUT} else outputs


def _run(
    pipeline: Pipeline, spark: SparkSession, bootstrap: str, checkpoints: Path, crashes: _Crashes
) -> None:
    from millrace.pipelines import Run, RunOptions

    __tracebackhide__ = True
    options = RunOptions(checkpoints=checkpoints, available_now=True, around_batches=crashes.around)
    run = Run(pipeline, spark, bootstrap, options)
    try:
        run.start()
        run.wait()
    except PipelineError as error:
        if not crashes.happened:
            # The frames are those of the run; the error and its notes show the user's code.
            raise error.with_traceback(None) from None
    finally:
        run.stop()


@dataclass(frozen=True)
class _Round:
    """The records before a mark, by input name, and the mark."""

    records: Mapping[str, list[Any]]
    end: Mark


def _rounds(pipeline: Pipeline, inputs: Mapping[str, Iterable[Any]]) -> Iterator[_Round]:
    if unknown := inputs.keys() - pipeline.inputs.keys():
        raise TypeError(
            f"{pipeline.name} has no input called {', '.join(sorted(unknown))};"
            f" it has {', '.join(pipeline.inputs)}"
        )
    pieces = {name: list(_pieces(inputs.get(name, ()))) for name in pipeline.inputs}
    for together in zip_longest(*pieces.values(), fillvalue=([], PAUSE)):
        fed = {name: records for name, (records, _) in zip(pieces, together, strict=True)}
        crashing = [mark for _, mark in together if mark is not PAUSE]
        yield _Round(fed, crashing[0] if crashing else PAUSE)


def _pieces(records: Iterable[Any]) -> Iterator[tuple[list[Any], Mark]]:
    """Yield the records up to each mark with the mark; the last ones end with a pause."""
    piece: list[Any] = []
    for is_mark, group in groupby(records, lambda item: isinstance(item, Mark)):
        if not is_mark:
            piece = list(group)
            continue
        for mark in group:
            yield piece, mark
            piece = []
    yield piece, PAUSE


class Crash(Exception):
    """The crash that a mark in the input requests."""


@dataclass
class _Crashes:
    """Makes one batch of each query crash, once per round."""

    mark: Mark = PAUSE
    is_new: bool = True
    happened: bool = False
    crashed: dict[str, int] = field(default_factory=dict)
    """The last batch of each query that crashed."""

    def prepare(self, mark: Mark, *, is_new: bool) -> None:
        """Crash at this mark: in the first batch with new records, or again in the last batch."""
        self.mark, self.is_new, self.happened = mark, is_new, False

    def around(self, query: str, write: WriteBatch) -> WriteBatch:
        """Wrap the function that writes the batches of a query."""
        # After a crash the same batch is repeated before the one with new records.
        first = self.crashed.get(query, -1) + self.is_new

        def crashing(frame: DataFrame, batch: int) -> None:
            if self.mark is PAUSE or batch < first:
                write(frame, batch)
                return
            self.happened = True
            self.crashed[query] = batch
            if self.mark is Mark.WHILE_WRITING:
                write(frame.mapInArrow(_fail_after_last_row, frame.schema), batch)
            elif self.mark is Mark.AFTER_WRITING:
                write(frame, batch)
            raise Crash(self.mark.value)

        return crashing


def _fail_after_last_row(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Pass rows through unchanged; the first task fails after its last row."""
    yield from batches
    if workers.task_number() == 0:
        raise Crash(Mark.WHILE_WRITING.value)
