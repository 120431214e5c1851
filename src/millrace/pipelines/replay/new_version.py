"""Replays a pipeline: builds a new version of its output from the log, beside the running one, and switches.

A replay of version N builds version N+1 from the start of the log: topics `<output>-vN+1`, queries
`<pipeline>-vN+1`. When it has caught up with the inputs, the pointer of every output moves to it (see
output_pointer.py): readers follow, and the older run stops after its batch. An interrupted replay resumes
where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from millrace.pipelines.console.progress_bar import Extent, ProgressBar
from millrace.pipelines.errors import BrokerUnavailable, PipelineError
from millrace.pipelines.history.range import Bound, Span, extent, settle
from millrace.pipelines.kafka import offsets, topic_admin
from millrace.pipelines.kafka.records import now_ms
from millrace.pipelines.replay import output_pointer
from millrace.pipelines.replay.output_pointer import Building, Output, Version
from millrace.pipelines.replay.takeover import is_running
from millrace.pipelines.run import checkpoint
from millrace.pipelines.run.lifecycle import Run
from millrace.pipelines.run.options import RunOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

    from millrace.pipelines.decorator import Pipeline

# A replay has caught up when it has processed everything that was in the log this long ago.
CLOSE_SECONDS = 5.0
POLL_SECONDS = 0.2
OLD_RUN_SECONDS = 300.0


class Replay:
    """One replay of a pipeline: `begin`, `catch_up`, `switch`, and perhaps `drop_old`."""

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        bootstrap: str,
        *,
        checkpoints: str | Path,
        start: Bound | None = None,
        console: Console | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.old = output_pointer.current_version(pipeline, bootstrap)
        self.new = Version(pipeline, self.old.number + 1)
        self.is_resumed = False
        """Whether an earlier replay started this version."""
        self.run: Run
        self._pipeline = pipeline
        self._spark = spark
        self._bootstrap = bootstrap
        self._checkpoints = checkpoints
        self._start = start
        self._console = console
        self._now = now
        self._first: offsets.Offsets = {}

    def begin(self, *, restart: bool = False) -> None:
        """Start the queries of the new version, or resume those of an interrupted replay."""
        if restart:
            self._discard()
        building = self._building()
        self.is_resumed = building is not None
        if building is not None:
            self._first = offsets.parse(building.start)
            self._require_checkpoint_of_results()
        else:
            self._refuse_leftovers()
            spans = settle(self._pipeline, self._bootstrap, self._start)
            self._first = {
                topic: dict(by_partition)
                for span in spans.values()
                for topic, by_partition in span.start.items()
            }
            self._record_start()
        for name, topic in self.new.topics.items():
            topic_admin.ensure_like(topic, self.old.topics[name], self._bootstrap)
        options = RunOptions(
            checkpoints=self._checkpoints,
            start=self._first,
            outputs=self.new.outputs,
            name=self.new.name,
        )
        self.run = Run(self._pipeline, self._spark, self._bootstrap, options)
        self.run.start()

    def catch_up(self, is_interrupted: Callable[[], bool] = lambda: False) -> bool:
        """Wait until the new version has caught up with the log, showing progress; False if interrupted."""
        whole, reached = self._extent(), 0
        with ProgressBar(self.new.name, whole, self._console) as bar:
            while True:
                ends, since = self._ends(), self._now()
                records = offsets.behind(self._first, ends)
                whole = Extent(records, whole.bytes * records // max(whole.records, 1))
                while missing := self._missing(ends):
                    self._check()
                    if is_interrupted():
                        return False
                    reached = max(reached, records - missing)
                    bar.update(reached, whole)
                    time.sleep(POLL_SECONDS)
                bar.update(records, whole)
                if self._now() - since < CLOSE_SECONDS:
                    return True

    def switch(self) -> None:
        """Make the new version the current one, for all outputs at once."""
        since = now_ms()
        output_pointer.publish(
            self._pipeline,
            [
                Output(name, topic, self.new.number, self._pipeline.name, since)
                for name, topic in self.new.topics.items()
            ],
            self._bootstrap,
        )

    def drop_old(self) -> None:
        """Delete the topics and the checkpoint of the old version, once its run has ended."""
        deadline = self._now() + OLD_RUN_SECONDS
        while is_running(self.old, self._bootstrap):
            if self._now() > deadline:
                raise PipelineError(
                    f"{self.old.name} is still running, so its topics are kept; stop it, and delete"
                    f" {', '.join(self.old.topics.values())} with `millrace topics --delete`"
                )
            time.sleep(POLL_SECONDS)
        self._remove(self.old)

    def _building(self) -> Building | None:
        known = output_pointer.all_outputs(self._bootstrap)
        for name in self.new.topics:
            output = known.get(name)
            if output is not None and output.next is not None and output.next.version == self.new.number:
                return output.next
        return None

    def _record_start(self) -> None:
        known = output_pointer.all_outputs(self._bootstrap)
        since = now_ms()
        start = {
            topic: {str(partition): offset for partition, offset in by_partition.items()}
            for topic, by_partition in self._first.items()
        }
        pointers = []
        for name, topic in self.new.topics.items():
            output = known.get(
                name, Output(name, self.old.topics[name], self.old.number, self._pipeline.name)
            )
            pointers.append(replace(output, next=Building(self.new.number, topic, since, start)))
        output_pointer.publish(self._pipeline, pointers, self._bootstrap)

    def _require_checkpoint_of_results(self) -> None:
        """Refuse to resume a version that has results but no checkpoint here."""
        for query, topic in zip(self.new.queries, self.new.topics.values(), strict=True):
            exists = topic_admin.exists(topic, self._bootstrap)
            ends = offsets.end_offsets(self._bootstrap, [topic])[topic] if exists else {}
            if any(ends.values()) and not checkpoint.exists(self._spark, self._checkpoints, query):
                raise PipelineError(
                    f"{topic} was started with a checkpoint that is not in {self._checkpoints};"
                    " give its directory with --checkpoints, or start over with --restart"
                )

    def _refuse_leftovers(self) -> None:
        """Refuse to start a version whose topics or checkpoints exist."""
        for query, topic in zip(self.new.queries, self.new.topics.values(), strict=True):
            if topic_admin.exists(topic, self._bootstrap):
                raise PipelineError(f"the topic {topic} exists already; --restart deletes it and starts over")
            if checkpoint.exists(self._spark, self._checkpoints, query):
                raise PipelineError(
                    f"{self._checkpoints} has a checkpoint of {query}; --restart deletes it and starts over"
                )

    def _discard(self) -> None:
        """Delete what an earlier replay has built."""
        known = output_pointer.all_outputs(self._bootstrap)
        started = [known[name] for name in self.new.topics if name in known and known[name].next is not None]
        pointers = [replace(output, next=None) for output in started]
        output_pointer.publish(self._pipeline, pointers, self._bootstrap)
        self._remove(self.new)

    def _remove(self, version: Version) -> None:
        topic_admin.delete(version.topics.values(), self._bootstrap)
        topic_admin.delete_groups(version.queries, self._bootstrap)
        for query in version.queries:
            checkpoint.remove(self._spark, self._checkpoints, query)

    def _extent(self) -> Extent:
        ends = offsets.stable_offsets(self._bootstrap, self._first)
        return extent(self._bootstrap, [Span(self._first, ends)])

    def _ends(self) -> offsets.Offsets:
        """The current ends of the inputs; waits while the broker is unavailable, as the run does."""
        while True:
            try:
                return offsets.stable_offsets(self._bootstrap, self._first)
            except BrokerUnavailable:
                self._check()
                time.sleep(POLL_SECONDS)

    def _missing(self, ends: offsets.Offsets) -> int:
        """Count the records before these ends that some query has not processed yet."""
        try:
            return max(offsets.behind(self._reached(query), ends) for query in self.new.queries)
        except BrokerUnavailable:
            return offsets.behind(self._first, ends)

    def _reached(self, query: str) -> Mapping[str, Mapping[int, int]]:
        committed = offsets.group_offsets(self._bootstrap, query, self._first)
        return {
            topic: {**by_partition, **committed.get(topic, {})} for topic, by_partition in self._first.items()
        }

    def _check(self) -> None:
        """Raise if the run has ended."""
        if self.run.ended:
            self.run.wait()
            raise PipelineError(f"{self.new.name} was stopped; run the same command again to resume")
