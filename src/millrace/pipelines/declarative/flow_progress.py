"""Commits the progress of a declarative project's flows, from Spark's checkpoints, to consumer groups."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

from millrace.pipelines.kafka.group_commits import GroupCommits
from millrace.pipelines.kafka.offsets import Offsets
from millrace.pipelines.spark.directory import Directory

CHECKPOINTS = "_checkpoints"


def commit(storage: Directory, project: str, bootstrap: str) -> None:
    """Commit the offsets that each flow has reached to the group `<project>.<flow>`."""
    with closing(GroupCommits(bootstrap)) as commits:
        for flow, reached in flows(storage):
            commits.put(f"{project}.{flow}", reached)


def flows(storage: Directory) -> Iterator[tuple[str, Offsets]]:
    """Yield the flows that read topics, and the offsets after their last complete batch."""
    for checkpoint in _checkpoints(storage, CHECKPOINTS):
        batch = _newest(storage.names(f"{checkpoint}/commits"))
        text = None if batch is None else storage.read(f"{checkpoint}/offsets/{batch}")
        if text and (reached := _topic_offsets(text)):
            yield checkpoint.split("/")[-2], reached


def _checkpoints(storage: Directory, directory: str) -> Iterator[str]:
    """Yield the newest checkpoint of each flow; a full refresh starts another one with a higher number."""
    names = storage.names(directory)
    newest = _newest(names)
    if newest is not None and "offsets" in storage.names(f"{directory}/{newest}"):
        yield f"{directory}/{newest}"
        return
    for name in names:
        yield from _checkpoints(storage, f"{directory}/{name}")


def _newest(names: list[str]) -> int | None:
    return max((int(name) for name in names if name.isdecimal()), default=None)


def _topic_offsets(offset_file: str) -> Offsets:
    """Parse a file with a line for the version, one for the batch, and one per source."""
    reached: Offsets = {}
    for line in offset_file.splitlines()[2:]:
        source = json.loads(line) if line.startswith("{") else {}
        for topic, partitions in source.items():
            if isinstance(partitions, dict):
                reached[topic] = {int(number): offset for number, offset in partitions.items()}
    return reached
