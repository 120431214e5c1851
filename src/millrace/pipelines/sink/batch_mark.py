"""Batch marks: how far each task of a query has written, kept as offsets of consumer groups."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Self

from confluent_kafka import TopicPartition


def transactional_id(query: str, task: int) -> str:
    """The transactional id of a task; it fences the attempts of the task from each other."""
    return f"{query}-{task}"


def commits_group(query: str, task: int | str) -> str:
    """The group that holds the batch mark of a task."""
    return f"{query}.commits.{task}"


@dataclass(frozen=True, slots=True)
class BatchMark:
    """The progress of a task: the number of the next batch, as an offset with metadata."""

    next_batch: int
    tasks: int
    """The number of tasks that wrote the batch."""
    checkpoint: str
    """The id of the checkpoint that numbers the batches; another checkpoint starts again at 0."""

    @classmethod
    def read(cls, committed: TopicPartition) -> Self | None:
        """Read the mark from a committed offset; None if there is none."""
        if committed.offset < 0:
            return None
        try:
            facts = json.loads(committed.metadata or "{}")
        except ValueError:
            facts = {}
        return cls(committed.offset, int(facts.get("tasks", 0)), str(facts.get("checkpoint", "")))

    def as_offset(self, topic: str) -> TopicPartition:
        """The mark as an offset to commit."""
        facts = json.dumps({"tasks": self.tasks, "checkpoint": self.checkpoint})
        return TopicPartition(topic, 0, self.next_batch, facts)

    def covers(self, batch: int, checkpoint: str) -> bool:
        """Whether the task has written this batch."""
        return self.checkpoint == checkpoint and self.next_batch > batch
