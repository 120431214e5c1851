"""The log as a source and as a target of a topology."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from millrace.topologies.model.bolts import Bolt
from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.specs import ComponentSpec
from millrace.topologies.model.spouts import Spout
from millrace.topologies.model.tuples import Tuple

INTERNAL_PREFIXES = ("__", "_topology.")
FORMATS = ("text", "bytes", "json")
STARTS = ("committed", "earliest", "latest")


class LogSpout(Spout):
    """Emits the records of topics. The runtime reads them: offsets take the place of message ids.

    `topic` is a name, a list of names, or a compiled pattern. `start` says where a group begins that has
    committed nothing: "earliest" or "latest".
    """

    outputs: ClassVar[Sequence[Any]] = ("topic", "partition", "offset", "timestamp", "key", "value")
    creates_topic: ClassVar[bool] = False
    """Whether its topic belongs to the topology, and is created with it."""

    def __init__(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        *,
        format: str = "text",
        start: str = "earliest",
    ) -> None:
        self.topic = topic
        self.format = format
        self.start = start

    @classmethod
    def check_spec(cls, spec: ComponentSpec, label: str) -> None:
        if spec.inputs:
            raise TopologyError(f"{label} is a spout: it has no inputs")
        try:
            instance = cls(*spec.arguments, **spec.keywords)
        except TypeError as error:
            raise TopologyError(f"{label}: {error}; write LogSpout.spec('topic')") from error
        if instance.format not in FORMATS:
            raise TopologyError(f"{label}: the format {instance.format!r} is not one of {', '.join(FORMATS)}")
        if instance.start not in ("earliest", "latest"):
            raise TopologyError(f"{label}: start must be 'earliest' or 'latest', not {instance.start!r}")

    def topics_among(self, names: Iterable[str]) -> list[str]:
        """The topics that this spout reads; raises TopologyError if one that it names does not exist."""
        known = list(names)
        if isinstance(self.topic, re.Pattern):
            # A pattern like .* does not mean the topics of topologies and brokers themselves.
            return [
                name
                for name in known
                if self.topic.fullmatch(name) and not name.startswith(INTERNAL_PREFIXES)
            ]
        wanted = [self.topic] if isinstance(self.topic, str) else list(self.topic)
        missing = [name for name in wanted if name not in known and not self.creates_topic]
        if missing:
            raise TopologyError(
                f"the topic {missing[0]} does not exist; "
                f"create it: millrace topics --create --topic {missing[0]}"
            )
        return wanted

    def next_tuple(self) -> None:
        """The runtime emits the records."""


class LogBolt(Bolt):
    """Writes tuples to a topic, as a JSON object of all fields unless a field is named for the value.

    `key` and `value` name fields; a text is written as UTF-8, bytes as they are, anything else as JSON.
    """

    def __init__(
        self,
        topic: str | Callable[[Tuple], str],
        *,
        key: str | None = None,
        value: str | None = None,
    ) -> None:
        self.topic = topic
        self.key = key
        self.value = value

    @classmethod
    def check_spec(cls, spec: ComponentSpec, label: str) -> None:
        super().check_spec(spec, label)
        try:
            instance = cls(*spec.arguments, **spec.keywords)
        except TypeError as error:
            raise TopologyError(f"{label}: {error}; write LogBolt.spec('topic', inputs=[other])") from error
        for source in spec.inputs:
            stream = source.spec.streams.get(source.stream)
            for field in (instance.key, instance.value):
                if field is not None and stream is not None and field not in stream.fields:
                    raise TopologyError(
                        f"{label} writes the field {field!r}, but {source.spec.name} emits "
                        f"{', '.join(stream.fields) or 'no fields'}"
                    )

    def process(self, tup: Tuple) -> None:
        """The runtime writes the tuple, inside the transaction if there is one."""
