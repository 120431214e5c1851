"""Serves a view: runs its batches and its stream, and merges both for readers here and in the log."""

from __future__ import annotations

import json
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import KafkaError, KafkaException, Producer

from millrace.pipelines.decorator import ONLY_OUTPUT
from millrace.pipelines.errors import PipelineError
from millrace.pipelines.history import batch
from millrace.pipelines.history.range import settle
from millrace.pipelines.kafka import offsets, records, topic_admin
from millrace.pipelines.run import checkpoint
from millrace.pipelines.run.lifecycle import Run
from millrace.pipelines.run.options import RunOptions
from millrace.pipelines.topics.declaration import LogTopic
from millrace.pipelines.views.generation import Cut, Generation
from millrace.pipelines.views.merge import Row, key_text

if TYPE_CHECKING:
    from types import TracebackType

    from pyspark.sql import SparkSession
    from rich.console import Console

    from millrace.pipelines.views.view import View

TOPIC = "millrace.views"
RETRY_SECONDS = 1.0
TRANSACTION_SECONDS = 30.0


class ServedView(AbstractContextManager["ServedView"]):
    """A view that is served: read it here, or read its rows from the compacted topic with its name."""

    def __init__(
        self,
        view: View,
        spark: SparkSession,
        bootstrap: str,
        *,
        checkpoints: str | Path,
        new_batch: bool = False,
        console: Console | None = None,
    ) -> None:
        self.view = view
        self._new_batch = new_batch
        self._spark = spark
        self._bootstrap = bootstrap
        self._checkpoints = checkpoints
        self._console = console
        self._rows: dict[str, Row] = {}
        self._unpublished: set[str] = set()
        self._reading = threading.Lock()
        """Held while rows change."""
        self._serving = threading.RLock()
        """Held while layers are read and published, by the thread below or at the end of a refresh."""
        self._refreshing = threading.Lock()
        self._ended = threading.Event()
        self._failure: PipelineError | None = None
        self._producer: Producer | None = None
        self._thread = threading.Thread(target=self._work, name=f"millrace-view-{view.name}", daemon=True)
        self._generation: Generation

    # Reading

    def get(self, *key: Any) -> Row | None:
        """The row of a key, given as one value per column of the key."""
        if len(key) != len(self.view.key):
            raise PipelineError(
                f"{self.view.name}: the key is {', '.join(self.view.key)}; give a value for each"
            )
        return self.find(key_text(list(key)))

    def find(self, key: str) -> Row | None:
        """The row of a key, given as text like the keys in the view's topic."""
        with self._reading:
            found = self._rows.get(key)
        return dict(found) if found is not None else None

    def rows(self) -> list[Row]:
        """All rows, as of the same moment."""
        with self._reading:
            return [dict(row) for row in self._rows.values()]

    @property
    def cut(self) -> Cut:
        """The cut of the generation that is served."""
        return self._generation.cut

    # Serving

    def __enter__(self) -> Self:
        self._accumulates = self.view.check(self._spark, self._bootstrap)
        topic_admin.ensure(TOPIC, self._bootstrap, config=topic_admin.COMPACTED)
        topic_admin.ensure(self.view.name, self._bootstrap, config=topic_admin.COMPACTED)
        known = records.latest(TOPIC, self._bootstrap).get(self.view.name)
        old = Cut.read(known) if known else None
        if old is None or self._new_batch:
            cut, _ = self._run_batch(old.generation + 1 if old else 1)
        else:
            cut = old
        self._generation = self._build(cut)
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
        published = records.latest(self.view.name, self._bootstrap)
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
        """Wait until an error ends the view and raise it; return whether the view has ended."""
        ended = self._generation.run.wait(timeout)
        if self._failure is not None:
            raise self._failure
        return ended

    def refresh(self) -> batch.Summary:
        """Compute a new batch up to now, and serve it once its stream has caught up with the old one."""
        with self._refreshing:
            cut, summary = self._run_batch(self.cut.generation + 1)
            built = self._build(cut)
            try:
                self._follow(built)
                # Serve nothing new until the new generation has everything that the old one may have shown.
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
        """Read the stream of a new generation until it has everything that the inputs hold now."""
        wanted = offsets.stable_offsets(self._bootstrap, built.cut.cut)
        while offsets.behind(built.reached(), wanted):
            if built.run.ended:
                built.run.wait()
                raise PipelineError(f"{built.cut.live} was stopped; refresh the view again")
            built.read()
        # The offsets are committed after the results, so the results are complete.
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
            self._failure = PipelineError(f"{self.view.name} failed: {error}; start it again to resume")

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
                    f"another process serves {self.view.name}; stop it, or give this view another name"
                )
                self._ended.set()
            else:
                self._ended.wait(RETRY_SECONDS)

    def _publish(self, cut: Cut | None = None) -> None:
        """Write changed rows to the view's topic, and the cut if given, in one transaction."""
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

    def _run_batch(self, number: int) -> tuple[Cut, batch.Summary]:
        """Compute a batch of everything up to now; return the cut where it ends."""
        spans = settle(self.view.pipeline, self._bootstrap, self.view.start)
        first = {topic: dict(start) for span in spans.values() for topic, start in span.start.items()}
        end = {topic: dict(ends) for span in spans.values() for topic, ends in span.end.items()}
        name = self.view.name
        cut = Cut(number, end, f"{name}-batch-{number}", f"{name}-live-{number}", records.now_ms())
        self._remove(cut)
        # One partition, so that its records are in the order of the stream's batches.
        for topic in (cut.batch, cut.live):
            topic_admin.ensure(topic, self._bootstrap, config={"retention.ms": "-1", "retention.bytes": "-1"})
        summary = batch.run(
            self.view.batch,
            self._spark,
            self._bootstrap,
            start=first,
            end=end,
            outputs={ONLY_OUTPUT: self._rows_in(cut.batch)},
            console=self._console,
        )
        return cut, summary

    def _build(self, cut: Cut) -> Generation:
        """Load the batch of a generation and start its stream."""
        options = RunOptions(
            checkpoints=self._checkpoints,
            start=cut.cut,
            outputs={ONLY_OUTPUT: self._rows_in(cut.live)},
            name=cut.live,
        )
        run = Run(self.view.live, self._spark, self._bootstrap, options)
        built = Generation(self.view, cut, self._bootstrap, accumulates=self._accumulates, run=run)
        built.load()
        run.start()
        return built

    def _rows_in(self, topic: str) -> LogTopic:
        return LogTopic(topic, "json", options=self.view.pipeline.outputs[ONLY_OUTPUT].options)

    def _remove(self, cut: Cut) -> None:
        """Delete a generation that is over, or that an interrupted batch left behind."""
        topic_admin.delete([cut.batch, cut.live], self._bootstrap)
        topic_admin.delete_groups([cut.live], self._bootstrap)
        checkpoint.remove(self._spark, self._checkpoints, cut.live)
