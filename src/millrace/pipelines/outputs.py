"""Which topic is the current version of an output: a pointer in the log that every reader can follow.

Version 1 of an output is the topic that its pipeline declares, version N is `<topic>-vN`. The compacted topic
`millrace.outputs` has a record for each output that was ever replayed: its key is the output's name, and its
value the JSON of an `Output`. All outputs of a pipeline change over in one transaction.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace

from millrace.pipelines import topics
from millrace.pipelines.log import LogTopic
from millrace.pipelines.pipeline import ONLY_OUTPUT, Pipeline

TOPIC = "millrace.outputs"


@dataclass(frozen=True, slots=True)
class Building:
    """A version that a replay is building: where it began, by topic and partition."""

    version: int
    topic: str
    since: int
    start: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Output:
    """Where the current version of an output is; `since` is in milliseconds."""

    name: str
    topic: str
    version: int = 1
    pipeline: str = ""
    since: int = 0
    next: Building | None = None

    @classmethod
    def read(cls, name: str, value: bytes) -> Output:
        """An output as the pointer's record has it; what a later millrace has added is left out."""
        parsed = json.loads(value)
        known = {key: parsed[key] for key in ("topic", "version", "pipeline", "since") if key in parsed}
        building = parsed.get("next")
        return cls(name, **known, next=Building(**building) if building else None)

    def written(self) -> bytes:
        """The value of the pointer's record."""
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
        """What its queries and groups begin with."""
        return f"{self.pipeline.name}{self.suffix}"

    @property
    def outputs(self) -> dict[str, LogTopic]:
        """The topics that it writes, by the names of the outputs."""
        return {
            name: replace(topic, name=topic.name + self.suffix)
            for name, topic in self.pipeline.outputs.items()
        }

    @property
    def topics(self) -> dict[str, str]:
        """The same topics, by the names that readers know: those that version 1 has."""
        return {topic.name: topic.name + self.suffix for topic in self.pipeline.outputs.values()}

    @property
    def queries(self) -> list[str]:
        """The names of its queries, which are those of their groups."""
        return [
            self.name if output == ONLY_OUTPUT else f"{self.name}.{output}"
            for output in self.pipeline.outputs
        ]


def current(name: str, bootstrap: str) -> str:
    """The topic that is the current version of an output: `current("trending", "localhost:9092")`."""
    return everything(bootstrap).get(name, Output(name, name)).topic


def current_version(pipeline: Pipeline, bootstrap: str) -> Version:
    """The version of a pipeline that its readers read, and `millrace run` runs."""
    known = everything(bootstrap)
    names = [topic.name for topic in pipeline.outputs.values()]
    return Version(pipeline, max((known[name].version for name in names if name in known), default=1))


def everything(bootstrap: str) -> dict[str, Output]:
    """Every output that has a pointer, by name."""
    return {name: Output.read(name, value) for name, value in topics.latest(TOPIC, bootstrap).items()}


def publish(pipeline: Pipeline, outputs: Iterable[Output], bootstrap: str) -> None:
    """Change pointers, all at once for whoever reads committed records."""
    topics.ensure(TOPIC, bootstrap, config=topics.COMPACTED)
    with topics.transaction(f"{TOPIC}.{pipeline.name}", bootstrap) as producer:
        for output in outputs:
            producer.produce(TOPIC, key=output.name, value=output.written())


def now_ms() -> int:
    """The time as records have it."""
    return int(time.time() * 1000)
