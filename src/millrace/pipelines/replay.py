"""Kappa: a new version of a pipeline's output, built from the log beside the running one, which it replaces.

A replay of version N builds version N+1 from the start of the log: topics `<output>-vN+1`, queries
`<pipeline>-vN+1`. When it has caught up with the inputs, the pointer of every output moves to it (see
outputs.py): readers follow, and the older run stops after its batch. A replay that is interrupted goes on
where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from millrace.pipelines import checkpoint, history, offsets, outputs, topics
from millrace.pipelines.bar import Bar, Extent
from millrace.pipelines.errors import BrokerAway, PipelineError
from millrace.pipelines.outputs import Building, Output, Version, now_ms
from millrace.pipelines.running import Run
from millrace.pipelines.takeover import is_running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

    from millrace.pipelines.pipeline import Pipeline

# Caught up: all that was in the log this long ago is done.
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
        start: history.Bound | None = None,
        console: Console | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.old = outputs.current_version(pipeline, bootstrap)
        self.new = Version(pipeline, self.old.number + 1)
        self.is_resumed = False
        """Whether an earlier replay had begun this version already."""
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
        """Start the new version's queries, or go on with those of an interrupted replay."""
        if restart:
            self._forget()
        building = self._building()
        self.is_resumed = building is not None
        if building is not None:
            self._first = offsets.parse(building.start)
            self._refuse_results_without_a_checkpoint()
        else:
            self._refuse_what_is_there()
            spans = history.settle(self._pipeline, self._bootstrap, self._start)
            self._first = {topic: dict(of) for span in spans.values() for topic, of in span.start.items()}
            self._note_begun()
        for name, topic in self.new.topics.items():
            topics.ensure_like(topic, self.old.topics[name], self._bootstrap)
        self.run = Run(
            self._pipeline,
            self._spark,
            self._bootstrap,
            checkpoints=self._checkpoints,
            start=self._first,
            outputs=self.new.outputs,
            name=self.new.name,
        )
        self.run.start()

    def catch_up(self, gives_up: Callable[[], bool] = lambda: False) -> bool:
        """Wait until the new version is as far as the log, showing how far it is; whether it is."""
        whole, reached = self._extent(), 0
        with Bar(self.new.name, whole, self._console) as bar:
            while True:
                ends, since = self._ends(), self._now()
                records = offsets.behind(self._first, ends)
                whole = Extent(records, whole.bytes * records // max(whole.records, 1))
                while missing := self._missing(ends):
                    self._check()
                    if gives_up():
                        return False
                    reached = max(reached, records - missing)
                    bar.update(reached, whole)
                    time.sleep(POLL_SECONDS)
                bar.update(records, whole)
                if self._now() - since < CLOSE_SECONDS:
                    return True

    def switch(self) -> None:
        """Make the new version the current one, for all its outputs at once."""
        since = now_ms()
        outputs.publish(
            self._pipeline,
            [
                Output(name, topic, self.new.number, self._pipeline.name, since)
                for name, topic in self.new.topics.items()
            ],
            self._bootstrap,
        )

    def drop_old(self) -> None:
        """Delete the topics and the checkpoint of the version before, when its run has ended."""
        deadline = self._now() + OLD_RUN_SECONDS
        while is_running(self.old, self._bootstrap):
            if self._now() > deadline:
                raise PipelineError(
                    f"{self.old.name} still runs, so its topics are kept; stop it, and delete"
                    f" {', '.join(self.old.topics.values())} with `millrace topics --delete`"
                )
            time.sleep(POLL_SECONDS)
        self._remove(self.old)

    def _building(self) -> Building | None:
        known = outputs.everything(self._bootstrap)
        for name in self.new.topics:
            output = known.get(name)
            if output is not None and output.next is not None and output.next.version == self.new.number:
                return output.next
        return None

    def _note_begun(self) -> None:
        known = outputs.everything(self._bootstrap)
        since = now_ms()
        start = {topic: {str(p): offset for p, offset in of.items()} for topic, of in self._first.items()}
        noted = []
        for name, topic in self.new.topics.items():
            output = known.get(
                name, Output(name, self.old.topics[name], self.old.number, self._pipeline.name)
            )
            noted.append(replace(output, next=Building(self.new.number, topic, since, start)))
        outputs.publish(self._pipeline, noted, self._bootstrap)

    def _refuse_results_without_a_checkpoint(self) -> None:
        for query, topic in zip(self.new.queries, self.new.topics.values(), strict=True):
            there = topics.exists(topic, self._bootstrap)
            ends = offsets.end_offsets(self._bootstrap, [topic])[topic] if there else {}
            if any(ends.values()) and not checkpoint.exists(self._spark, self._checkpoints, query):
                raise PipelineError(
                    f"{topic} was begun with a checkpoint that is not in {self._checkpoints};"
                    " give its directory with --checkpoints, or begin anew with --restart"
                )

    def _refuse_what_is_there(self) -> None:
        for query, topic in zip(self.new.queries, self.new.topics.values(), strict=True):
            if topics.exists(topic, self._bootstrap):
                raise PipelineError(
                    f"the topic {topic} is there already; --restart deletes it and begins anew"
                )
            if checkpoint.exists(self._spark, self._checkpoints, query):
                raise PipelineError(
                    f"{self._checkpoints} has a checkpoint of {query}; --restart deletes it and begins anew"
                )

    def _forget(self) -> None:
        """Delete what an earlier replay has begun to build."""
        known = outputs.everything(self._bootstrap)
        begun = [known[name] for name in self.new.topics if name in known and known[name].next is not None]
        outputs.publish(self._pipeline, [replace(output, next=None) for output in begun], self._bootstrap)
        self._remove(self.new)

    def _remove(self, version: Version) -> None:
        topics.delete(version.topics.values(), self._bootstrap)
        topics.delete_groups(version.queries, self._bootstrap)
        for query in version.queries:
            checkpoint.remove(self._spark, self._checkpoints, query)

    def _extent(self) -> Extent:
        ends = offsets.stable_offsets(self._bootstrap, self._first)
        return history.extent(self._bootstrap, [history.Span(self._first, ends)])

    def _ends(self) -> offsets.Offsets:
        """Where the inputs end now; a broker that is away is waited for, as the run does."""
        while True:
            try:
                return offsets.stable_offsets(self._bootstrap, self._first)
            except BrokerAway:
                self._check()
                time.sleep(POLL_SECONDS)

    def _missing(self, ends: offsets.Offsets) -> int:
        """How many records lie before these ends that some query has not done yet."""
        try:
            return max(offsets.behind(self._reached(query), ends) for query in self.new.queries)
        except BrokerAway:
            return offsets.behind(self._first, ends)

    def _reached(self, query: str) -> Mapping[str, Mapping[int, int]]:
        committed = offsets.group_offsets(self._bootstrap, query, self._first)
        return {topic: {**of, **committed.get(topic, {})} for topic, of in self._first.items()}

    def _check(self) -> None:
        """Raise what has ended the run, if it has ended."""
        if self.run.ended:
            self.run.wait()
            raise PipelineError(f"{self.new.name} was stopped; start the replay again and it goes on")
