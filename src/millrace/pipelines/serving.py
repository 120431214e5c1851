"""Runs a view: its batches, its stream, and the merge of both for readers here and in the log."""

from __future__ import annotations

import json
import threading
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from millrace.pipelines import checkpoint, history, offsets, topics
from millrace.pipelines.errors import PipelineError
from millrace.pipelines.log import LogTopic
from millrace.pipelines.merging import Layer, Row, key_text
from millrace.pipelines.outputs import now_ms
from millrace.pipelines.pipeline import ONLY_OUTPUT
from millrace.pipelines.running import Run

if TYPE_CHECKING:
    from types import TracebackType

    from pyspark.sql import SparkSession
    from rich.console import Console

    from millrace.pipelines.views import View

TOPIC = "millrace.views"
POLL_SECONDS = 0.05
RETRY_SECONDS = 1.0
TRANSACTION_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Cut:
    """A generation of a view: where its batch ends and its stream begins, and the topics of both."""

    generation: int
    cut: offsets.Offsets
    batch: str
    live: str
    since: int

    @classmethod
    def read(cls, value: bytes) -> Cut:
        parsed = json.loads(value)
        return cls(**parsed | {"cut": offsets.parse(parsed["cut"])})

    def written(self) -> bytes:
        return json.dumps(asdict(self)).encode()


class Generation:
    """The two layers of a view between two batches: a batch's rows, and a stream that begins at its cut."""

    def __init__(self, view: View, cut: Cut, bootstrap: str, *, accumulates: bool, run: Run) -> None:
        self.cut = cut
        self.run = run
        self._bootstrap = bootstrap
        self._merge = view.rules
        self._accumulates = accumulates
        self.batch = Layer(view.rules, accumulates=accumulates)
        self.live = Layer(view.rules, accumulates=accumulates)
        self._consumer = topics.reader(bootstrap)
        self.position = 0
        """How far the stream's results have been read."""

    def load(self) -> None:
        """Read the batch's rows, and begin with the stream's."""
        for read, message in enumerate(topics.to_the_end(self.cut.batch, self._bootstrap), start=1):
            key = self.batch.put(json.loads(message.value() or b""))
            if not self._accumulates and len(self.batch.rows) < read:
                raise PipelineError(
                    f"{self.cut.batch} has several rows for {key}; key= has to name every column that the"
                    " pipeline groups by"
                )
        self._consumer.assign([TopicPartition(self.cut.live, 0, 0)])

    def read(self) -> set[str]:
        """Take what the stream has put out since; returns the keys that have changed."""
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
        """Every merged row."""
        keys = self.batch.rows.keys() | self.live.rows.keys()
        return {key: self._merge(self.batch.rows.get(key), self.live.rows.get(key)) for key in keys}

    def reached(self) -> offsets.Offsets:
        """The offsets of the inputs up to which everything is in this generation."""
        committed = offsets.group_offsets(self._bootstrap, self.cut.live, self.cut.cut)
        return {topic: {**of, **committed.get(topic, {})} for topic, of in self.cut.cut.items()}

    def close(self) -> None:
        self.run.stop()
        self._consumer.close()


class Served(AbstractContextManager["Served"]):
    """A view that is being served: read it here, or its rows in the compacted topic of its name."""

    def __init__(
        self,
        view: View,
        spark: SparkSession,
        bootstrap: str,
        *,
        checkpoints: str | Path,
        anew: bool = False,
        console: Console | None = None,
    ) -> None:
        self.view = view
        self._anew = anew
        self._spark = spark
        self._bootstrap = bootstrap
        self._checkpoints = checkpoints
        self._console = console
        self._rows: dict[str, Row] = {}
        self._unpublished: set[str] = set()
        self._reading = threading.Lock()
        """Held for as long as rows change under their readers."""
        self._serving = threading.RLock()
        """Held by whoever reads layers and publishes: the thread below, or a refresh that ends."""
        self._refreshing = threading.Lock()
        self._ended = threading.Event()
        self._failure: PipelineError | None = None
        self._producer: Producer | None = None
        self._thread = threading.Thread(target=self._work, name=f"millrace-view-{view.name}", daemon=True)
        self._generation: Generation

    # Reading

    def get(self, *key: Any) -> Row | None:
        """The row of a key, of one value for each of the key's columns."""
        if len(key) != len(self.view.key):
            raise PipelineError(
                f"{self.view.name}: the key is {', '.join(self.view.key)}; give a value for each"
            )
        return self.find(key_text(list(key)))

    def find(self, key: str) -> Row | None:
        """The row of a key that is given as text, as the records of the view's topic have it."""
        with self._reading:
            found = self._rows.get(key)
        return dict(found) if found is not None else None

    def rows(self) -> list[Row]:
        """Every row, all of the same moment."""
        with self._reading:
            return [dict(row) for row in self._rows.values()]

    @property
    def cut(self) -> Cut:
        """Where the batch of the served generation ends."""
        return self._generation.cut

    # Serving

    def __enter__(self) -> Self:
        self._accumulates = self.view.check(self._spark, self._bootstrap)
        topics.ensure(TOPIC, self._bootstrap, config=topics.COMPACTED)
        topics.ensure(self.view.name, self._bootstrap, config=topics.COMPACTED)
        known = topics.latest(TOPIC, self._bootstrap).get(self.view.name)
        old = Cut.read(known) if known else None
        if old is None or self._anew:
            cut, _ = self._batch(old.generation + 1 if old else 1)
        else:
            cut = old
        self._generation = self._built(cut)
        try:
            self._begin(cut)
        except BaseException:
            self._generation.close()
            raise
        if old is not None and old != cut:
            self._remove(old)
        self._thread.start()
        return self

    def _begin(self, cut: Cut) -> None:
        published = topics.latest(self.view.name, self._bootstrap)
        self._rows = self._generation.rows()
        self._unpublished = {
            key for key in published.keys() | self._rows.keys() if published.get(key) != self._value(key)
        }
        self._publish(cut)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._generation.close()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the view is not served any more, which is by an error; whether that is so."""
        ended = self._generation.run.wait(timeout)
        if self._failure is not None:
            raise self._failure
        return ended

    def refresh(self) -> history.Summary:
        """Compute a new batch up to now, and serve from it when its stream has come as far as the old one."""
        with self._refreshing:
            cut, summary = self._batch(self.cut.generation + 1)
            built = self._built(cut)
            try:
                self._follow(built)
                # Nothing new is served now until the new generation has whatever the old one can have shown.
                with self._serving:
                    self._follow(built)
                    old = self._generation
                    self._replace(built)
            except BaseException:
                built.close()
                raise
            old.close()
            self._remove(old.cut)
        return summary

    def _follow(self, built: Generation) -> None:
        """Read a new generation's stream until it has all that is in the inputs at this moment."""
        wanted = offsets.stable_offsets(self._bootstrap, built.cut.cut)
        while offsets.behind(built.reached(), wanted):
            if built.run.ended:
                built.run.wait()
                raise PipelineError(f"{built.cut.live} was stopped; refresh the view again")
            built.read()
        # The offsets are committed behind the results: those are there.
        end = offsets.stable_offsets(self._bootstrap, [built.cut.live])[built.cut.live][0]
        while built.position < end:
            built.read()

    def _replace(self, built: Generation) -> None:
        older, newer = self._rows, built.rows()
        changed = {key for key in older.keys() | newer.keys() if older.get(key) != newer.get(key)}
        self._unpublished |= changed
        with self._reading:
            self._rows = newer
        self._generation = built
        self._publish(built.cut)

    def _work(self) -> None:
        try:
            while not self._ended.is_set():
                self._step()
        except Exception as error:
            self._failure = PipelineError(f"{self.view.name} failed: {error}; start it again and it goes on")

    def _step(self) -> None:
        with self._serving:
            changed = self._generation.read()
            if changed:
                with self._reading:
                    for key in changed:
                        self._rows[key] = self._generation.row(key) or {}
                self._unpublished |= changed
            if self._unpublished:
                self._try_to_publish()

    def _try_to_publish(self) -> None:
        try:
            self._publish()
        except KafkaException as error:
            self._producer = None
            if error.args[0].code() in {KafkaError._FENCED, KafkaError.PRODUCER_FENCED}:
                self._failure = PipelineError(
                    f"another process serves {self.view.name} now; stop it, or give this view another name"
                )
                self._ended.set()
            else:
                self._ended.wait(RETRY_SECONDS)

    def _publish(self, cut: Cut | None = None) -> None:
        """Write changed rows to the view's topic, and the cut with them, in one transaction."""
        if self._producer is None:
            settings = {"transactional.id": f"{TOPIC}.{self.view.name}", "log_level": 0}
            self._producer = Producer({"bootstrap.servers": self._bootstrap, **settings})
            self._producer.init_transactions(TRANSACTION_SECONDS)
        producer = self._producer
        taken = set(self._unpublished)
        producer.begin_transaction()
        for key in taken:
            self._produce(producer, self.view.name, key, self._value(key))
        if cut is not None:
            self._produce(producer, TOPIC, self.view.name, cut.written())
        producer.commit_transaction(TRANSACTION_SECONDS)
        self._unpublished -= taken

    @staticmethod
    def _produce(producer: Producer, topic: str, key: str, value: bytes | None) -> None:
        while True:
            try:
                producer.produce(topic, key=key.encode(), value=value)
                return
            except BufferError:
                producer.poll(0.1)

    def _value(self, key: str) -> bytes | None:
        row = self._rows.get(key)
        return None if row is None else json.dumps(row, ensure_ascii=False).encode()

    # Generations

    def _batch(self, number: int) -> tuple[Cut, history.Summary]:
        """Compute a batch of everything up to now; returns where it ends."""
        spans = history.settle(self.view.pipeline, self._bootstrap, self.view.start)
        first = {topic: dict(of) for span in spans.values() for topic, of in span.start.items()}
        end = {topic: dict(of) for span in spans.values() for topic, of in span.end.items()}
        name = self.view.name
        cut = Cut(number, end, f"{name}-batch-{number}", f"{name}-live-{number}", now_ms())
        self._remove(cut)
        # One partition: what is in it is in the order of the stream's batches.
        for topic in (cut.batch, cut.live):
            topics.ensure(topic, self._bootstrap, config={"retention.ms": "-1", "retention.bytes": "-1"})
        summary = history.run(
            self.view.batch,
            self._spark,
            self._bootstrap,
            start=first,
            end=end,
            outputs={ONLY_OUTPUT: self._rows_in(cut.batch)},
            console=self._console,
        )
        return cut, summary

    def _built(self, cut: Cut) -> Generation:
        run = Run(
            self.view.live,
            self._spark,
            self._bootstrap,
            checkpoints=self._checkpoints,
            start=cut.cut,
            outputs={ONLY_OUTPUT: self._rows_in(cut.live)},
            name=cut.live,
        )
        built = Generation(self.view, cut, self._bootstrap, accumulates=self._accumulates, run=run)
        built.load()
        run.start()
        return built

    def _rows_in(self, topic: str) -> LogTopic:
        return LogTopic(topic, "json", options=self.view.pipeline.outputs[ONLY_OUTPUT].options)

    def _remove(self, cut: Cut) -> None:
        """Delete a generation that is over, or that an interrupted batch has left."""
        topics.delete([cut.batch, cut.live], self._bootstrap)
        topics.delete_groups([cut.live], self._bootstrap)
        checkpoint.remove(self._spark, self._checkpoints, cut.live)
