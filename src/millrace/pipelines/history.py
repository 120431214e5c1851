"""The same pipeline as a batch over a range of the log, with its progress in records and bytes.

The range is settled once, as exact offsets, before anything is read: what a running producer adds meanwhile
is not part of it, and a batch that was interrupted can be run again over the very same records.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from confluent_kafka import Consumer, TopicPartition
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql.functions import count, lit

from millrace.pipelines import codecs, dead_letters, failures, offsets, reading, topics, writing
from millrace.pipelines.bar import Bar, Extent, size
from millrace.pipelines.batch_progress import followed
from millrace.pipelines.errors import PipelineError
from millrace.pipelines.exactly_once import ANNOUNCEMENT, ExactlyOnce
from millrace.pipelines.log import GroupOffsets, LogTopic, Start
from millrace.pipelines.pipeline import ONLY_OUTPUT, Delivery, Pipeline
from millrace.pipelines.transactions import commits_group

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from rich.console import Console

Offsets: TypeAlias = Mapping[str, Mapping[int, int]]
"""Offsets by topic and partition."""
Bound: TypeAlias = Start | Offsets

SAMPLED_PARTITIONS = 16
SAMPLED_RECORDS = 500
SAMPLE_SECONDS = 2.0
COUNT_SECONDS = 5.0

_UNITS = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
_DURATION = re.compile(r"-(?:\d+[wdhms])+")
_REFUSED = {
    "applyInPandasWithState": "write the function with transformWithState, which runs as a batch too",
    "dropDuplicatesWithinWatermark": "use dropDuplicates, which a stream bounds by its watermark as well",
}


@dataclass(frozen=True, slots=True)
class Span:
    """The exact range of one input: for each partition the first offset, and the one behind the last."""

    start: Offsets
    end: Offsets

    @property
    def records(self) -> int:
        """How many offsets there are in it."""
        return offsets.behind(self.start, self.end)


@dataclass(frozen=True, slots=True)
class Summary:
    """What a batch has done."""

    pipeline: str
    read: Extent
    written: Mapping[str, int]
    """Records by the topic that they were written to."""
    seconds: float

    def __str__(self) -> str:
        out = ", ".join(f"{records:,} records to {topic}" for topic, records in self.written.items())
        rate = self.read.records / max(self.seconds, 0.001)
        return (
            f"{self.pipeline}: read {self.read.records:,} records ({size(self.read.bytes)}), wrote {out}"
            f" in {self.seconds:.1f} s ({rate:,.0f} records/s)"
        )


def moment(text: str, *, now: datetime | None = None) -> Start:
    """A point in a log as people write it.

    `earliest`, `latest`, `now`, `2026-11-01`, `2026-11-01T12:30`, `2026-11-01T12:30:00+01:00`,
    `@1793923200000` (milliseconds since 1970), or `-2h` before now (w, d, h, m, s; `-1d12h`). A time
    without a zone is this machine's.
    """
    text = text.strip()
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if text == "now":
        return now or datetime.now(UTC)
    if _DURATION.fullmatch(text):
        parts = {_UNITS[unit]: int(number) for number, unit in re.findall(r"(\d+)([wdhms])", text)}
        return (now or datetime.now(UTC)) - timedelta(**parts)
    try:
        if text.startswith("@"):
            return datetime.fromtimestamp(int(text[1:]) / 1000, UTC)
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError):
        raise PipelineError(
            f"{text!r} is no point in time; write 2026-11-01, 2026-11-01T12:30, -2h, @1793923200000"
            " (milliseconds), now, earliest or latest"
        ) from None


def redirected(pipeline: Pipeline, texts: Iterable[str]) -> dict[str, LogTopic]:
    """The outputs that `NAME=topic` words send elsewhere; of an only output the topic is enough."""
    outputs: dict[str, LogTopic] = {}
    for text in texts:
        name, equals, topic = text.rpartition("=")
        name = name if equals else ONLY_OUTPUT
        if name not in pipeline.outputs or not topic:
            known = ", ".join(f"--output {one}=TOPIC" for one in pipeline.outputs)
            raise PipelineError(f"--output {text}: {pipeline.name} has no such output; write {known}")
        outputs[name] = replace(pipeline.outputs[name], name=topic)
    return outputs


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

    Without `start` from the oldest record, without `end` to the newest that there is now.
    """
    began = time.monotonic()
    targets = {**pipeline.outputs, **(outputs or {})}
    spans = settle(pipeline, bootstrap, start, end)
    whole = extent(bootstrap, spans.values())
    session = _session(spark, pipeline)
    written: Counter[str] = Counter()
    try:
        with Bar(pipeline.name, whole, console) as bar:
            for query, target, frame in _encoded(pipeline, session, bootstrap, spans, targets):
                with followed(session, query, whole, bar):
                    written[target.name] += _write(query, frame, target, bootstrap, pipeline.delivery, spans)
            bar.update(whole.records)
    except (PySparkException, Py4JError) as error:
        raise _explained(pipeline, bootstrap, error) from error
    return Summary(pipeline.name, whole, dict(written), time.monotonic() - began)


def settle(
    pipeline: Pipeline, bootstrap: str, start: Bound | None = None, end: Bound | None = None
) -> dict[str, Span]:
    """The exact range of every input that is a stream; a table is always read whole."""
    streams = {name: topic for name, topic in pipeline.inputs.items() if not topic.table}
    names = {name: _topics(topic, bootstrap) for name, topic in streams.items()}
    every = sorted({topic for topics in names.values() for topic in topics})
    first = offsets.start_offsets(bootstrap, every)
    last = offsets.stable_offsets(bootstrap, every)
    starts = _resolved(bootstrap, every, start or "earliest", first, last)
    ends = _resolved(bootstrap, every, end or "latest", first, last)
    # Never from before what the log still has, nor backwards.
    starts = {
        topic: {p: min(max(o, first[topic][p]), last[topic][p]) for p, o in starts[topic].items()}
        for topic in every
    }
    ends = {
        topic: {p: min(max(o, starts[topic][p]), last[topic][p]) for p, o in ends[topic].items()}
        for topic in every
    }
    return {
        name: Span({topic: starts[topic] for topic in topics}, {topic: ends[topic] for topic in topics})
        for name, topics in names.items()
    }


def extent(bootstrap: str, spans: Iterable[Span]) -> Extent:
    """How much there is to read: records by their offsets, bytes by the size of some of them."""
    records = 0
    size_of_all = 0.0
    for span in spans:
        records += span.records
        size_of_all += span.records * _record_size(bootstrap, span)
    return Extent(records, round(size_of_all))


def _topics(topic: LogTopic, bootstrap: str) -> list[str]:
    found = reading.topics(topic, bootstrap)
    if not found:
        raise PipelineError(
            f"no topic at {bootstrap} matches {topic.name}; `millrace topics --list` shows all"
        )
    return found


def _resolved(bootstrap: str, topics: list[str], bound: Bound, first: Offsets, last: Offsets) -> Offsets:
    if bound == "earliest":
        return first
    if bound == "latest":
        return last
    if isinstance(bound, datetime):
        return offsets.offsets_at(bootstrap, topics, bound)
    if isinstance(bound, GroupOffsets):
        return _filled(offsets.group_offsets(bootstrap, bound.group, topics), first)
    if isinstance(bound, Mapping):
        return _filled(_by_topic(topics, bound), first)
    raise PipelineError(f"{bound!r} is no place in a log; give earliest, latest, a time or offsets")


def _by_topic(topics: list[str], given: Mapping[Any, Any]) -> Offsets:
    """Offsets by topic and partition, whether given so or by partition alone, for every topic."""
    plain = {partition: offset for partition, offset in given.items() if isinstance(partition, int)}
    return {topic: given.get(topic, plain) for topic in topics}


def _filled(given: Offsets, first: Offsets) -> Offsets:
    return {topic: {**of, **given.get(topic, {})} for topic, of in first.items()}


def _record_size(bootstrap: str, span: Span) -> float:
    """The mean size of a record, of those in the middle of the largest partitions."""
    places = sorted(
        ((end - span.start[topic][p], topic, p) for topic, of in span.end.items() for p, end in of.items()),
        reverse=True,
    )
    chosen = [
        TopicPartition(topic, p, span.start[topic][p] + records // 2)
        for records, topic, p in places[:SAMPLED_PARTITIONS]
        if records
    ]
    if not chosen:
        return 0.0
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "millrace-sizes",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    sizes: list[int] = []
    ended = 0
    deadline = time.monotonic() + SAMPLE_SECONDS
    try:
        consumer.assign(chosen)
        while len(sizes) < SAMPLED_RECORDS and ended < len(chosen) and time.monotonic() < deadline:
            for message in consumer.consume(SAMPLED_RECORDS, timeout=0.1):
                if message.error():
                    ended += 1
                else:
                    sizes.append(len(message.key() or b"") + len(message.value() or b""))
    finally:
        consumer.close()
    return sum(sizes) / len(sizes) if sizes else 0.0


def _session(spark: SparkSession, pipeline: Pipeline) -> SparkSession:
    """A session with the pipeline's settings, which leaves those of others alone."""
    session = spark.newSession()
    # The same tasks whenever the same batch runs: the exactly-once sink tells them apart by number.
    session.conf.set("spark.sql.adaptive.enabled", "false")
    # Spark's older interface to Kafka counts neither the records that it reads nor those that it writes.
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
    """What to write: for each output, and each topic of dead letters, its query's name and its rows."""
    frames = {
        name: reading.batch(spark, topic, bootstrap)
        if topic.table
        else reading.batch(spark, topic, bootstrap, start=spans[name].start, end=spans[name].end)
        for name, topic in pipeline.inputs.items()
    }
    for output, frame in pipeline.apply(frames).items():
        name = pipeline.name if output == ONLY_OUTPUT else f"{pipeline.name}.{output}"
        yield name, targets[output], codecs.encode(frame, targets[output])
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
    """Write encoded rows, and return how many there were."""
    counted = Observation()
    rows = frame.observe(counted, count(lit(1)).alias("rows"))
    if delivery == "exactly-once":
        batch = f"{query}.history-{_fingerprint(spans, target)}"
        ExactlyOnce(batch, target, bootstrap)(rows, _number(batch, target, bootstrap))
        # Its marks have let an interrupted batch go on; the next one over this range is a new one.
        topics.delete_groups([batch], bootstrap)
    else:
        writing.write_batch(rows, target, bootstrap)
    return _told(counted)


def _number(batch: str, target: LogTopic, bootstrap: str) -> int:
    """The number of a batch that was broken off, to be completed; else one that was never used before."""
    if topics.exists(target.name, bootstrap):
        begun = offsets.group_offsets(bootstrap, commits_group(batch, ANNOUNCEMENT), [target.name])
        if (number := begun.get(target.name, {}).get(0)) is not None:
            return number
    return int(time.time() * 1000)


def _told(counted: Observation) -> int:
    """What Spark has counted; it says so a moment after the batch."""
    deadline = time.monotonic() + COUNT_SECONDS
    while True:
        if counted._jo is not None and counted._jo.future().isCompleted():
            return int(counted.get["rows"])
        if time.monotonic() > deadline:
            return 0
        time.sleep(0.01)


def _fingerprint(spans: Mapping[str, Span], target: LogTopic) -> str:
    exact = {name: [span.start, span.end] for name, span in spans.items()}
    text = json.dumps([exact, target.name], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _explained(pipeline: Pipeline, bootstrap: str, error: Exception) -> PipelineError:
    text = failures.text_of(error)
    for operator, remedy in _REFUSED.items():
        if operator in text and "batch" in text:
            return PipelineError(f"{pipeline.name}: {operator} works on streams only; {remedy}")
    return failures.explained(error, pipeline.name, bootstrap)
