"""Plans a run: one query per output of the pipeline, and one per input with dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millrace.pipelines.decorator import ONLY_OUTPUT, Pipeline
from millrace.pipelines.kafka import offsets
from millrace.pipelines.kafka.client import admin
from millrace.pipelines.run import checkpoint, execution_mode
from millrace.pipelines.run.checkpoint import Fingerprint
from millrace.pipelines.run.options import RunOptions
from millrace.pipelines.run.query import Query
from millrace.pipelines.spark.query_plan import Plan
from millrace.pipelines.topics import dead_letters, encoding, reading
from millrace.pipelines.topics.declaration import LogTopic
from millrace.pipelines.topics.names import topic_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class RunPlan:
    """A pipeline, the Spark session and the broker that it runs on, and its options."""

    pipeline: Pipeline
    spark: SparkSession
    bootstrap: str
    options: RunOptions

    @property
    def name(self) -> str:
        return self.options.name or self.pipeline.name

    @property
    def checkpoints(self) -> str:
        return str(self.options.checkpoints)

    def location(self, query: str) -> str:
        """The checkpoint of a query."""
        return checkpoint.location(self.checkpoints, query)

    def queries(self) -> list[Query]:
        """Plan the queries, without starting anything."""
        return [*self._output_queries(), *self._dead_letter_queries()]

    def check_checkpoint(self, query: Query) -> None:
        """Refuse a checkpoint that does not fit the query, before any data is touched."""
        now = Fingerprint.of(
            query.plan,
            query.topic.name,
            query.delivery,
            query.execution.mode,
            self.spark.conf.get("spark.sql.shuffle.partitions") or "",
            query.topics,
            self.bootstrap,
        )
        may_lose = any(
            topic.options.get("failOnDataLoss", "").lower() == "false"
            for topic in self.pipeline.inputs.values()
        )
        checkpoint.check(self.spark, self.checkpoints, query.name, now, self.bootstrap, may_lose=may_lose)

    def _output_queries(self) -> Iterator[Query]:
        frames = {
            name: reading.stream(self.spark, topic, self.bootstrap, start=self._start(topic))
            for name, topic in self.pipeline.inputs.items()
        }
        outputs = {**self.pipeline.outputs, **self.options.outputs}
        slots_taken = 0
        for output, frame in self.pipeline.apply(frames).items():
            name = self.name if output == ONLY_OUTPUT else f"{self.name}.{output}"
            encoded = encoding.encode(frame, outputs[output])
            plan = Plan(encoded)
            topics = self._topics(plan)
            execution = execution_mode.choose(
                self.pipeline,
                encoded,
                plan=plan,
                available_now=self.options.available_now,
                wrapped=self.options.around_batches is not None,
                tasks=self._tasks(topics),
                slots_taken=slots_taken,
            )
            slots_taken += execution.slots
            yield Query(name, outputs[output], encoded, plan, execution, self.pipeline.delivery, topics)

    def _dead_letter_queries(self) -> Iterator[Query]:
        for name, topic in self.pipeline.inputs.items():
            if dead_letters.wanted(topic):
                letters = dead_letters.stream(
                    self.spark, topic, self.bootstrap, self.name, start=self._start(topic)
                )
                yield Query(
                    f"{self.name}.dead-letters.{name}",
                    dead_letters.output(topic),
                    letters,
                    Plan(letters),
                    execution_mode.COMPANION,
                    self.pipeline.delivery,
                    topic_names(topic, self.bootstrap),
                )

    def _start(self, topic: LogTopic) -> dict[str, Mapping[int, int]] | None:
        """The starting offsets that belong to this input."""
        if self.options.start is None or topic.table:
            return None
        names = topic_names(topic, self.bootstrap)
        return {name: self.options.start[name] for name in names if name in self.options.start} or None

    def _topics(self, plan: Plan) -> list[str]:
        """The topics that a query reads."""
        wanted = set(plan.sources)
        inputs = [topic for topic in self.pipeline.inputs.values() if topic.name in wanted]
        return sorted({name for topic in inputs for name in topic_names(topic, self.bootstrap)})

    def _tasks(self, topics: list[str]) -> int:
        """The number of tasks that read these topics."""
        return sum(map(len, offsets.partitions(admin(self.bootstrap), topics).values()))
