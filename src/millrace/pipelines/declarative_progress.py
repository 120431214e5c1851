"""How far the flows of a declarative project are, from Spark's checkpoints to consumer groups."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

from millrace.pipelines.files import Directory
from millrace.pipelines.offsets import Commits, Offsets

CHECKPOINTS = "_checkpoints"


def commit(storage: Directory, project: str, bootstrap: str) -> None:
    """Commit the offsets that each flow has read up to, to the group `<project>.<flow>`."""
    with closing(Commits(bootstrap)) as commits:
        for flow, reached in flows(storage):
            commits.put(f"{project}.{flow}", reached)


def flows(storage: Directory) -> Iterator[tuple[str, Offsets]]:
    """The flows that read topics, by name, and the offsets after their last complete batch."""
    for place in _checkpoints(storage, CHECKPOINTS):
        done = _newest(storage.names(f"{place}/commits"))
        text = None if done is None else storage.read(f"{place}/offsets/{done}")
        if text and (reached := _of_topics(text)):
            yield place.split("/")[-2], reached


def _checkpoints(storage: Directory, place: str) -> Iterator[str]:
    """Directories of checkpoints; a full refresh of a flow begins another one, with a higher number."""
    names = storage.names(place)
    newest = _newest(names)
    if newest is not None and "offsets" in storage.names(f"{place}/{newest}"):
        yield f"{place}/{newest}"
        return
    for name in names:
        yield from _checkpoints(storage, f"{place}/{name}")


def _newest(names: list[str]) -> int | None:
    return max((int(name) for name in names if name.isdecimal()), default=None)


def _of_topics(offset_file: str) -> Offsets:
    """The offsets in a file that has a version, a line about the batch, and a line for every source."""
    reached: Offsets = {}
    for line in offset_file.splitlines()[2:]:
        source = json.loads(line) if line.startswith("{") else {}
        for topic, partitions in source.items():
            if isinstance(partitions, dict):
                reached[topic] = {int(number): offset for number, offset in partitions.items()}
    return reached
