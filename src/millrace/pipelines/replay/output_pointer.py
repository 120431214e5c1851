"""The output pointer: which topic is the current version of an output, kept in the log for every reader.

Version 1 of an output is the topic that its pipeline declares; version N is `<topic>-vN`. The compacted topic
`millrace.outputs` has a record for each output that was ever replayed. Its key is the name of the output, its
value the JSON of an `Output`. All outputs of a pipeline switch in one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace

from millrace.pipelines.decorator import ONLY_OUTPUT, Pipeline
from millrace.pipelines.kafka import records, topic_admin
from millrace.pipelines.topics.declaration import LogTopic

TOPIC = "millrace.outputs"


@dataclass(frozen=True, slots=True)
class Building:
    """A version that a replay is building: where it started, by topic and partition."""

    version: int
    topic: str
    since: int
    start: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Output:
    """The topic of the current version of an output; `since` is in milliseconds."""

    name: str
    topic: str
    version: int = 1
    pipeline: str = ""
    since: int = 0
    next: Building | None = None

    @classmethod
    def read(cls, name: str, value: bytes) -> Output:
        """Parse the value of a pointer; fields of a later millrace are ignored."""
        parsed = json.loads(value)
        known = {key: parsed[key] for key in ("topic", "version", "pipeline", "since") if key in parsed}
        building = parsed.get("next")
        return cls(name, **known, next=Building(**building) if building else None)

    def written(self) -> bytes:
        """The value of the pointer."""
        value = {key: item for key, item in asdict(self).items() if key != "name" and item is not None}
        return json.dumps(value).encode()


@dataclass(frozen=True)
class Version:
    """One version of a pipeline: the topics that it writes, and the names of its queries."""

    pipeline: Pipeline
    number: int

    @property
    def suffix(self) -> str:
        return f"-v{self.number}" if self.number > 1 else ""

    @property
    def name(self) -> str:
        """The prefix of its queries and groups."""
        return f"{self.pipeline.name}{self.suffix}"

    @property
    def outputs(self) -> dict[str, LogTopic]:
        """The topics that it writes, by output name."""
        return {
            name: replace(topic, name=topic.name + self.suffix)
            for name, topic in self.pipeline.outputs.items()
        }

    @property
    def topics(self) -> dict[str, str]:
        """The same topics, by the names that readers know: those of version 1."""
        return {topic.name: topic.name + self.suffix for topic in self.pipeline.outputs.values()}

    @property
    def queries(self) -> list[str]:
        """The names of its queries, which are also the names of their groups."""
        return [
            self.name if output == ONLY_OUTPUT else f"{self.name}.{output}"
            for output in self.pipeline.outputs
        ]


def current(name: str, bootstrap: str) -> str:
    """Return the topic of the current version of an output: `current("trending", "localhost:9092")`."""
    return all_outputs(bootstrap).get(name, Output(name, name)).topic


def current_version(pipeline: Pipeline, bootstrap: str) -> Version:
    """Return the version of a pipeline that readers read and `millrace run` runs."""
    known = all_outputs(bootstrap)
    names = [topic.name for topic in pipeline.outputs.values()]
    return Version(pipeline, max((known[name].version for name in names if name in known), default=1))


def all_outputs(bootstrap: str) -> dict[str, Output]:
    """Return every output that has a pointer, by name."""
    return {name: Output.read(name, value) for name, value in records.latest(TOPIC, bootstrap).items()}


def publish(pipeline: Pipeline, outputs: Iterable[Output], bootstrap: str) -> None:
    """Change pointers, all at once for readers of committed records."""
    topic_admin.ensure(TOPIC, bootstrap, config=topic_admin.COMPACTED)
    with records.transaction(f"{TOPIC}.{pipeline.name}", bootstrap) as producer:
        for output in outputs:
            producer.produce(TOPIC, key=output.name, value=output.written())
