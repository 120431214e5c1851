"""Runs a pipeline as a batch over a range of the log, and shows its progress in records and bytes."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql.functions import count, lit

from millrace.pipelines.console.job_progress import followed
from millrace.pipelines.console.progress_bar import Extent, ProgressBar, size
from millrace.pipelines.decorator import ONLY_OUTPUT, Delivery, Pipeline
from millrace.pipelines.errors import PipelineError
from millrace.pipelines.history.range import Bound, Span, extent, settle
from millrace.pipelines.kafka import offsets, topic_admin
from millrace.pipelines.run import failures
from millrace.pipelines.sink import at_least_once
from millrace.pipelines.sink.batch_mark import commits_group
from millrace.pipelines.sink.exactly_once import ANNOUNCEMENT, ExactlyOnce
from millrace.pipelines.topics import dead_letters, encoding, reading
from millrace.pipelines.topics.declaration import LogTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from rich.console import Console

COUNT_SECONDS = 5.0

_STREAMING_ONLY = {
    "applyInPandasWithState": "use transformWithState, which runs as a batch too",
    "dropDuplicatesWithinWatermark": "use dropDuplicates, which a stream bounds by its watermark too",
}


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of a batch."""

    pipeline: str
    read: Extent
    written: Mapping[str, int]
    """The number of records written, by topic."""
    seconds: float

    def __str__(self) -> str:
        out = ", ".join(f"{records:,} records to {topic}" for topic, records in self.written.items())
        rate = self.read.records / max(self.seconds, 0.001)
        return (
            f"{self.pipeline}: read {self.read.records:,} records ({size(self.read.bytes)}), wrote {out}"
            f" in {self.seconds:.1f} s ({rate:,.0f} records/s)"
        )


def run(
    pipeline: Pipeline,
    spark: SparkSession,
    bootstrap: str,
    *,
    start: Bound | None = None,
    end: Bound | None = None,
    outputs: Mapping[str, LogTopic] | None = None,
    console: Console | None = None,
) -> Summary:
    """Run a pipeline over a range of the log and write its results, showing progress on the console.

    The range starts at the oldest record and ends at the newest one unless `start` and `end` say otherwise.
    """
    began = time.monotonic()
    targets = {**pipeline.outputs, **(outputs or {})}
    spans = settle(pipeline, bootstrap, start, end)
    whole = extent(bootstrap, spans.values())
    session = _session(spark, pipeline)
    written: Counter[str] = Counter()
    try:
        with ProgressBar(pipeline.name, whole, console) as bar:
            for query, target, frame in _encoded(pipeline, session, bootstrap, spans, targets):
                with followed(session, query, whole, bar):
                    written[target.name] += _write(query, frame, target, bootstrap, pipeline.delivery, spans)
            bar.update(whole.records)
    except (PySparkException, Py4JError) as error:
        raise _explained(pipeline, bootstrap, error) from error
    return Summary(pipeline.name, whole, dict(written), time.monotonic() - began)


def _session(spark: SparkSession, pipeline: Pipeline) -> SparkSession:
    """A session with the pipeline's settings, which do not affect other sessions."""
    session = spark.newSession()
    # A repeated batch must have the same tasks: the exactly-once sink identifies them by number.
    session.conf.set("spark.sql.adaptive.enabled", "false")
    # Spark's older Kafka source and sink do not count the records that they read and write.
    session.conf.set("spark.sql.sources.useV1SourceList", "avro,csv,json,orc,parquet,text")
    for key, value in pipeline.settings.items():
        session.conf.set(key, value)
    return session


def _encoded(
    pipeline: Pipeline,
    spark: SparkSession,
    bootstrap: str,
    spans: Mapping[str, Span],
    targets: Mapping[str, LogTopic],
) -> Iterator[tuple[str, LogTopic, DataFrame]]:
    """Yield a query name, a topic and encoded rows for each output and each dead-letter topic."""
    frames = {
        name: reading.batch(spark, topic, bootstrap)
        if topic.table
        else reading.batch(spark, topic, bootstrap, start=spans[name].start, end=spans[name].end)
        for name, topic in pipeline.inputs.items()
    }
    for output, frame in pipeline.apply(frames).items():
        name = pipeline.name if output == ONLY_OUTPUT else f"{pipeline.name}.{output}"
        yield name, targets[output], encoding.encode(frame, targets[output])
    for name, topic in pipeline.inputs.items():
        if dead_letters.wanted(topic) and not topic.table:
            span = spans[name]
            letters = dead_letters.batch(
                spark, topic, bootstrap, pipeline.name, start=span.start, end=span.end
            )
            yield f"{pipeline.name}.dead-letters.{name}", dead_letters.output(topic), letters


def _write(
    query: str,
    frame: DataFrame,
    target: LogTopic,
    bootstrap: str,
    delivery: Delivery,
    spans: Mapping[str, Span],
) -> int:
    """Write encoded rows and return their number."""
    counter = Observation()
    rows = frame.observe(counter, count(lit(1)).alias("rows"))
    if delivery == "exactly-once":
        batch = f"{query}.history-{_fingerprint(spans, target)}"
        ExactlyOnce(batch, target, bootstrap)(rows, _batch_number(batch, target, bootstrap))
        # The marks let an interrupted batch resume. This one is complete; the next over this range is new.
        topic_admin.delete_groups([batch], bootstrap)
    else:
        at_least_once.write_batch(rows, target, bootstrap)
    return _counted(counter)


def _batch_number(batch: str, target: LogTopic, bootstrap: str) -> int:
    """The number of an interrupted batch, to complete it; else a number that was never used."""
    if topic_admin.exists(target.name, bootstrap):
        announced = offsets.group_offsets(bootstrap, commits_group(batch, ANNOUNCEMENT), [target.name])
        if (number := announced.get(target.name, {}).get(0)) is not None:
            return number
    return int(time.time() * 1000)


def _counted(counter: Observation) -> int:
    """The rows that Spark has counted; it reports them shortly after the batch."""
    deadline = time.monotonic() + COUNT_SECONDS
    while True:
        if counter._jo is not None and counter._jo.future().isCompleted():
            return int(counter.get["rows"])
        if time.monotonic() > deadline:
            return 0
        time.sleep(0.01)


def _fingerprint(spans: Mapping[str, Span], target: LogTopic) -> str:
    exact = {name: [span.start, span.end] for name, span in spans.items()}
    text = json.dumps([exact, target.name], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _explained(pipeline: Pipeline, bootstrap: str, error: Exception) -> PipelineError:
    text = failures.text_of(error)
    for operator, remedy in _STREAMING_ONLY.items():
        if operator in text and "batch" in text:
            return PipelineError(f"{pipeline.name}: {operator} works on streams only; {remedy}")
    return failures.explained(error, pipeline.name, bootstrap)
