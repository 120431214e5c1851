"""Ranges of the log: points in time as users write them, settled to exact offsets, and their size.

A range is settled once, before anything is read. Records that a producer adds later are not part of it, and
an interrupted batch can be repeated over exactly the same records.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from confluent_kafka import Consumer, TopicPartition

from millrace.pipelines.console.progress_bar import Extent
from millrace.pipelines.decorator import Pipeline
from millrace.pipelines.errors import PipelineError
from millrace.pipelines.kafka import offsets
from millrace.pipelines.topics.declaration import GroupOffsets, LogTopic, Start
from millrace.pipelines.topics.names import topic_names

Offsets: TypeAlias = Mapping[str, Mapping[int, int]]
"""Offsets by topic and partition."""
Bound: TypeAlias = Start | Offsets

SAMPLED_PARTITIONS = 16
SAMPLED_RECORDS = 500
SAMPLE_SECONDS = 2.0

_UNITS = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
_DURATION = re.compile(r"-(?:\d+[wdhms])+")


@dataclass(frozen=True, slots=True)
class Span:
    """The exact range of one input: the first offset of each partition, and the one after the last."""

    start: Offsets
    end: Offsets

    @property
    def records(self) -> int:
        """The number of offsets in the range."""
        return offsets.behind(self.start, self.end)


def moment(text: str, *, now: datetime | None = None) -> Start:
    """Parse a point in a log as users write it.

    `earliest`, `latest`, `now`, `2026-11-01`, `2026-11-01T12:30`, `2026-11-01T12:30:00+01:00`,
    `@1793923200000` (milliseconds since 1970), or `-2h` before now (w, d, h, m, s; `-1d12h`). A time
    without a zone is in this machine's zone.
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
            f"{text!r} is not a point in time; write 2026-11-01, 2026-11-01T12:30, -2h, @1793923200000"
            " (milliseconds), now, earliest or latest"
        ) from None


def settle(
    pipeline: Pipeline, bootstrap: str, start: Bound | None = None, end: Bound | None = None
) -> dict[str, Span]:
    """Settle the exact range of every input that is a stream; a table is always read whole."""
    streams = {name: topic for name, topic in pipeline.inputs.items() if not topic.table}
    names = {name: _topics(topic, bootstrap) for name, topic in streams.items()}
    topics = sorted({topic for listed in names.values() for topic in listed})
    first = offsets.start_offsets(bootstrap, topics)
    last = offsets.stable_offsets(bootstrap, topics)
    starts = _resolved(bootstrap, topics, start or "earliest", first, last)
    ends = _resolved(bootstrap, topics, end or "latest", first, last)
    # Never before the oldest record of the log, and never backwards.
    starts = {
        topic: {p: min(max(o, first[topic][p]), last[topic][p]) for p, o in starts[topic].items()}
        for topic in topics
    }
    ends = {
        topic: {p: min(max(o, starts[topic][p]), last[topic][p]) for p, o in ends[topic].items()}
        for topic in topics
    }
    return {
        name: Span({topic: starts[topic] for topic in listed}, {topic: ends[topic] for topic in listed})
        for name, listed in names.items()
    }


def extent(bootstrap: str, spans: Iterable[Span]) -> Extent:
    """Measure ranges: records by their offsets, bytes estimated from a sample."""
    records = 0
    bytes_in_all = 0.0
    for span in spans:
        records += span.records
        bytes_in_all += span.records * _mean_record_bytes(bootstrap, span)
    return Extent(records, round(bytes_in_all))


def _topics(topic: LogTopic, bootstrap: str) -> list[str]:
    found = topic_names(topic, bootstrap)
    if not found:
        raise PipelineError(
            f"no topic at {bootstrap} matches {topic.name}; `millrace topics --list` lists them"
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
    raise PipelineError(f"{bound!r} is not a point in a log; give earliest, latest, a time or offsets")


def _by_topic(topics: list[str], given: Mapping[Any, Any]) -> Offsets:
    """Offsets by topic and partition; offsets by partition only apply to every topic."""
    by_partition = {partition: offset for partition, offset in given.items() if isinstance(partition, int)}
    return {topic: given.get(topic, by_partition) for topic in topics}


def _filled(given: Offsets, first: Offsets) -> Offsets:
    return {topic: {**by_partition, **given.get(topic, {})} for topic, by_partition in first.items()}


def _mean_record_bytes(bootstrap: str, span: Span) -> float:
    """The mean size of a record, sampled in the middle of the largest partitions."""
    by_size = sorted(
        (
            (end - span.start[topic][partition], topic, partition)
            for topic, by_partition in span.end.items()
            for partition, end in by_partition.items()
        ),
        reverse=True,
    )
    sampled = [
        TopicPartition(topic, partition, span.start[topic][partition] + records // 2)
        for records, topic, partition in by_size[:SAMPLED_PARTITIONS]
        if records
    ]
    if not sampled:
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
        consumer.assign(sampled)
        while len(sizes) < SAMPLED_RECORDS and ended < len(sampled) and time.monotonic() < deadline:
            for message in consumer.consume(SAMPLED_RECORDS, timeout=0.1):
                if message.error():
                    ended += 1
                else:
                    sizes.append(len(message.key() or b"") + len(message.value() or b""))
    finally:
        consumer.close()
    return sum(sizes) / len(sizes) if sizes else 0.0
