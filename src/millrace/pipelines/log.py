"""Topics of the log as pipelines declare them: what their records look like, and where reading begins.

A declaration says the same whether the topic is read or written, streamed or read as a batch; nothing here
touches Spark or the broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from millrace.pipelines.errors import PipelineError

Format = Literal["json", "text", "bytes"]
Metadata = Literal["key", "topic", "partition", "offset", "timestamp", "headers"]

METADATA: tuple[Metadata, ...] = ("key", "topic", "partition", "offset", "timestamp", "headers")


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """Begin where a consumer group stands; at the earliest record where it has committed nothing."""

    group: str


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Put records that cannot be read into a topic, with the reason and their origin in headers."""

    topic: str


# "earliest", "latest", a point in time (aware, or of this machine's zone), offsets by partition, a group's.
Start = Literal["earliest", "latest"] | datetime | Mapping[int, int] | GroupOffsets
Malformed = Literal["fail", "drop"] | DeadLetters


@dataclass(frozen=True, slots=True)
class LogTopic:
    """A topic, or every topic that a pattern matches, and how to read and write its records."""

    name: str
    format: Format
    schema: str | None = None
    """Reading JSON: the columns, as in Spark ("user string, at timestamp")."""
    pattern: bool = False
    """Reading: the name is a regular expression over topic names."""
    table: bool = False
    """Reading: not a stream, but the newest value of every key, as of each batch."""
    metadata: tuple[Metadata, ...] = ()
    """Reading: columns to add from the record itself."""
    start: Start = "earliest"
    """Reading: where a pipeline without a checkpoint begins."""
    malformed: Malformed = "fail"
    """Reading: what becomes of records that do not fit."""
    key: str | None = None
    """Writing: the column that is the record's key. Of a table: the name that its key gets as a column."""
    headers: str | None = None
    """Writing: the column that holds headers, a map of strings or Spark's array of (key, value)."""
    partition: str | None = None
    """Writing: the column that holds the partition's number."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options for Spark's Kafka source or sink, which go before ours ("kafka.security.protocol", ...)."""

    def __post_init__(self) -> None:
        unknown = set(self.metadata) - set(METADATA)
        if unknown:
            raise PipelineError(
                f"{self.name}: there is no metadata called {', '.join(sorted(unknown))};"
                f" a record has {', '.join(METADATA)}"
            )
        if self.table and self.key is None:
            raise PipelineError(f"{self.name}: a table needs key=, the name of the column that gets its key")


def json(
    topic: str,
    schema: str | None = None,
    *,
    pattern: bool = False,
    metadata: tuple[Metadata, ...] = (),
    start: Start = "earliest",
    malformed: Malformed = "fail",
    key: str | None = None,
    headers: str | None = None,
    partition: str | None = None,
    options: Mapping[str, str] | None = None,
) -> LogTopic:
    """A topic of JSON objects; the schema is needed to read it, not to write it."""
    return LogTopic(
        topic,
        "json",
        schema,
        pattern=pattern,
        metadata=metadata,
        start=start,
        malformed=malformed,
        key=key,
        headers=headers,
        partition=partition,
        options=options or {},
    )


def text(
    topic: str,
    *,
    pattern: bool = False,
    metadata: tuple[Metadata, ...] = (),
    start: Start = "earliest",
    malformed: Malformed = "fail",
    key: str | None = None,
    headers: str | None = None,
    partition: str | None = None,
    options: Mapping[str, str] | None = None,
) -> LogTopic:
    """A topic of UTF-8 text, in a column called `value`."""
    return LogTopic(
        topic,
        "text",
        pattern=pattern,
        metadata=metadata,
        start=start,
        malformed=malformed,
        key=key,
        headers=headers,
        partition=partition,
        options=options or {},
    )


def bytes(
    topic: str,
    *,
    pattern: bool = False,
    metadata: tuple[Metadata, ...] = (),
    start: Start = "earliest",
    key: str | None = None,
    headers: str | None = None,
    partition: str | None = None,
    options: Mapping[str, str] | None = None,
) -> LogTopic:
    """A topic of anything, in a binary column called `value`."""
    return LogTopic(
        topic,
        "bytes",
        pattern=pattern,
        metadata=metadata,
        start=start,
        key=key,
        headers=headers,
        partition=partition,
        options=options or {},
    )


def table(
    topic: str,
    schema: str,
    *,
    key: str,
    malformed: Malformed = "drop",
    options: Mapping[str, str] | None = None,
) -> LogTopic:
    """A topic of JSON as a table: the newest value of each key, without deleted ones, to join streams with.

    It is read again for every batch of the stream, so it is as new as the batch.
    """
    return LogTopic(topic, "json", schema, table=True, key=key, malformed=malformed, options=options or {})


def group(name: str) -> GroupOffsets:
    """Begin where this consumer group stands."""
    return GroupOffsets(name)


def dead_letters(topic: str) -> DeadLetters:
    """Put malformed records there."""
    return DeadLetters(topic)
