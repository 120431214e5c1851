"""A generation of a view: a batch up to a cut, and the stream that starts at the cut."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, TopicPartition

from millrace.pipelines.errors import PipelineError
from millrace.pipelines.kafka import offsets
from millrace.pipelines.kafka.records import committed_consumer, read_to_end
from millrace.pipelines.run.lifecycle import Run
from millrace.pipelines.views.merge import Layer, Row

if TYPE_CHECKING:
    from millrace.pipelines.views.view import View

POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Cut:
    """The offsets at which the batch of a generation ends and its stream starts, and the topics of both."""

    generation: int
    cut: offsets.Offsets
    batch: str
    live: str
    since: int

    @classmethod
    def read(cls, value: bytes) -> Cut:
        """Parse a cut from its record."""
        parsed = json.loads(value)
        return cls(**parsed | {"cut": offsets.parse(parsed["cut"])})

    def written(self) -> bytes:
        """The value of the cut's record."""
        return json.dumps(asdict(self)).encode()


class Generation:
    """The two layers of a view between two batches: the rows of a batch, and the stream after its cut."""

    def __init__(self, view: View, cut: Cut, bootstrap: str, *, accumulates: bool, run: Run) -> None:
        self.cut = cut
        self.run = run
        self._bootstrap = bootstrap
        self._merge = view.rules
        self._accumulates = accumulates
        self.batch = Layer(view.rules, accumulates=accumulates)
        self.live = Layer(view.rules, accumulates=accumulates)
        self._consumer = committed_consumer(bootstrap)
        self.position = 0
        """The offset up to which the results of the stream have been read."""

    def load(self) -> None:
        """Read the rows of the batch, and start at the first result of the stream."""
        for read, message in enumerate(read_to_end(self.cut.batch, self._bootstrap), start=1):
            key = self.batch.put(json.loads(message.value() or b""))
            if not self._accumulates and len(self.batch.rows) < read:
                raise PipelineError(
                    f"{self.cut.batch} has several rows for {key}; key= must name every column that the"
                    " pipeline groups by"
                )
        self._consumer.assign([TopicPartition(self.cut.live, 0, 0)])

    def read(self) -> set[str]:
        """Read new results of the stream; return the keys that have changed."""
        changed = set()
        for message in self._consumer.consume(1000, timeout=POLL_SECONDS):
            error = message.error()
            if error is None:
                changed.add(self.live.put(json.loads(message.value() or b"")))
                self.position = (message.offset() or 0) + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self.position = max(self.position, message.offset() or 0)
        return changed

    def row(self, key: str) -> Row | None:
        """The merged row of a key."""
        older, newer = self.batch.rows.get(key), self.live.rows.get(key)
        return None if older is None and newer is None else self._merge(older, newer)

    def rows(self) -> dict[str, Row]:
        """All merged rows by key."""
        keys = self.batch.rows.keys() | self.live.rows.keys()
        return {key: self._merge(self.batch.rows.get(key), self.live.rows.get(key)) for key in keys}

    def reached(self) -> offsets.Offsets:
        """The offsets of the inputs up to which this generation has processed everything."""
        committed = offsets.group_offsets(self._bootstrap, self.cut.live, self.cut.cut)
        return {
            topic: {**by_partition, **committed.get(topic, {})}
            for topic, by_partition in self.cut.cut.items()
        }

    def close(self) -> None:
        self.run.stop()
        self._consumer.close()
