"""Declarations of topics: the format of their records, and where reading starts.

Users import this module as `millrace.pipelines.log`. One declaration serves to read and to write a topic, as
a stream or as a batch. Nothing here talks to Spark or to the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from millrace.pipelines.errors import PipelineError

Format = Literal["json", "text", "bytes", "avro", "json_schema", "protobuf"]
Metadata = Literal["key", "topic", "partition", "offset", "timestamp", "headers"]

# Formats whose schemas are in a schema registry.
REGISTERED: tuple[Format, ...] = ("avro", "json_schema", "protobuf")

METADATA: tuple[Metadata, ...] = ("key", "topic", "partition", "offset", "timestamp", "headers")


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """Start at the committed offsets of a consumer group; at the earliest record where it has none."""

    group: str


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Write malformed records to a topic, with the reason and their origin in headers."""

    topic: str


# "earliest", "latest", a time (aware, or in this machine's zone), offsets by partition, or a group's offsets.
Start = Literal["earliest", "latest"] | datetime | Mapping[int, int] | GroupOffsets
Malformed = Literal["fail", "drop"] | DeadLetters


@dataclass(frozen=True, slots=True)
class LogTopic:
    """A topic, or all topics that match a pattern, and the format of its records."""

    name: str
    format: Format
    schema: str | None = None
    """Reading JSON: the columns, in Spark's syntax ("user string, at timestamp").

    Writing a format of the schema registry: the schema to register; that of the columns if it is left out.
    """
    pattern: bool = False
    """Reading: the name is a regular expression over topic names."""
    table: bool = False
    """Reading: not a stream, but the newest value of every key, as of each batch."""
    metadata: tuple[Metadata, ...] = ()
    """Reading: columns to add from the record itself."""
    start: Start = "earliest"
    """Reading: where a pipeline without a checkpoint starts."""
    malformed: Malformed = "fail"
    """Reading: what happens to malformed records."""
    key: str | None = None
    """Writing: the column that holds the record's key. Reading a table: the column name of its key."""
    headers: str | None = None
    """Writing: the column that holds the headers, a map of strings or Spark's array of (key, value)."""
    partition: str | None = None
    """Writing: the column that holds the partition number."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of Spark's Kafka source or sink ("kafka.security.protocol", ...). They override ours."""
    registry: str | None = None
    """The address of the schema registry; $MILLRACE_REGISTRY, or http://localhost:8081, if it is left out."""
    subject: str | None = None
    """The subject of the values; the one that `strategy` names if it is left out."""
    version: int | Literal["latest"] = "latest"
    """Reading: the version whose columns are read. Records of all other versions are resolved to it."""
    strategy: str = "TopicNameStrategy"
    """The rule that names the subject; the other rules are RecordNameStrategy and TopicRecordNameStrategy."""

    def __post_init__(self) -> None:
        unknown = set(self.metadata) - set(METADATA)
        if unknown:
            raise PipelineError(
                f"{self.name}: there is no metadata called {', '.join(sorted(unknown))};"
                f" a record has {', '.join(METADATA)}"
            )
        if self.table and self.key is None:
            raise PipelineError(f"{self.name}: a table needs key=, the column name of its key")


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
    """A topic of JSON objects. Reading needs the schema, writing does not."""
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
    """A topic of arbitrary bytes, in a binary column called `value`."""
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


def _registered(name: Format, doc: str) -> Callable[..., LogTopic]:
    def declare(
        topic: str,
        schema: str | None = None,
        *,
        version: int | Literal["latest"] = "latest",
        registry: str | None = None,
        subject: str | None = None,
        strategy: str = "TopicNameStrategy",
        pattern: bool = False,
        metadata: tuple[Metadata, ...] = (),
        start: Start = "earliest",
        malformed: Malformed = "fail",
        key: str | None = None,
        headers: str | None = None,
        partition: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> LogTopic:
        return LogTopic(
            topic,
            name,
            schema,
            pattern=pattern,
            metadata=metadata,
            start=start,
            malformed=malformed,
            key=key,
            headers=headers,
            partition=partition,
            options=options or {},
            registry=registry,
            subject=subject,
            version=version,
            strategy=strategy,
        )

    declare.__name__ = declare.__qualname__ = name
    declare.__doc__ = doc
    return declare


avro = _registered("avro", "A topic of Avro records whose schemas are in a schema registry.")
json_schema = _registered("json_schema", "A topic of JSON whose JSON Schemas are in a schema registry.")
protobuf = _registered("protobuf", "A topic of Protobuf messages whose schemas are in a schema registry.")


def table(
    topic: str,
    schema: str,
    *,
    key: str,
    malformed: Malformed = "drop",
    options: Mapping[str, str] | None = None,
) -> LogTopic:
    """A topic of JSON as a table to join streams with: the newest value of each key that is not deleted.

    Every batch of the stream reads the table again, so it is as fresh as the batch.
    """
    return LogTopic(topic, "json", schema, table=True, key=key, malformed=malformed, options=options or {})


def group(name: str) -> GroupOffsets:
    """Start at the committed offsets of this consumer group."""
    return GroupOffsets(name)


def dead_letters(topic: str) -> DeadLetters:
    """Write malformed records to this topic."""
    return DeadLetters(topic)
