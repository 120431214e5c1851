"""Listens to the progress of queries and commits it to consumer groups, where every Kafka tool sees it.

Spark keeps the offsets of a query in its checkpoint, where no Kafka tool looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from millrace.pipelines.kafka.group_commits import GroupCommits
from millrace.pipelines.kafka.offsets import Offsets, parse


def reached(progress: Any) -> Offsets:
    """Return the offsets after the last record of a batch, from Spark's report on it."""
    merged: Offsets = {}
    for source in progress.sources:
        # Only Kafka's offsets have this form; a query may have other sources too.
        with suppress(ValueError, AttributeError, TypeError):
            for topic, by_partition in parse(source.endOffset).items():
                # Two inputs may read one topic: the group shows the slower one.
                known = merged.setdefault(topic, {})
                for partition, offset in by_partition.items():
                    known[partition] = min(offset, known.get(partition, offset))
    return merged


class ProgressListener(StreamingQueryListener):
    """Commits the offsets of every batch to the group with the query's name, and calls `on_progress`.

    Other queries of the session are ignored.
    """

    def __init__(
        self, commits: GroupCommits, queries: Iterable[str], on_progress: Callable[[Any], None] | None = None
    ) -> None:
        self._commits = commits
        self._queries = frozenset(queries)
        self._on_progress = on_progress

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self.record(event.progress)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass

    def record(self, progress: Any) -> None:
        """Record the progress of a batch."""
        if progress.name not in self._queries:
            return
        if offsets := reached(progress):
            self._commits.put(progress.name, offsets)
        if self._on_progress is not None:
            self._on_progress(progress)
