"""State from outside: one key of a component, as its last commit left it."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

from millrace.topologies.model.errors import TopologyError
from millrace.topologies.runtime import topics
from millrace.topologies.runtime.frames import Values
from millrace.topologies.runtime.restore import restore
from millrace.topologies.runtime.state import TaskState
from millrace.topologies.runtime.store import DiskStore

TIMEOUT_SECONDS = 10.0


class NoSuchState(TopologyError):
    """A component has no state, or its state has no such key."""


class StateQuery:
    """Answers from the changelogs of topologies. Any thread may use it, one at a time.

    Each changelog that was asked for is kept as a file and read on from where it was, so the first question
    about a large state takes as long as its restore, and later ones read only what has changed.
    """

    def __init__(self, bootstrap: str, client: Mapping[str, str] | None = None) -> None:
        self._config = {
            **(client or {}),
            "bootstrap.servers": bootstrap,
            "group.id": "topology-state-query",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
        self._values = Values()
        self._directory = tempfile.TemporaryDirectory(prefix="millrace-state-query-")
        self._copies: dict[str, list[TaskState]] = {}
        self._lock = threading.Lock()

    def get(self, topology: str, component: str, key: str) -> Any:
        """The committed value of a key; raises NoSuchState if there is none.

        A key is text. One that the state does not have is tried as JSON next: 7, true, ["a", 1].
        """
        with self._lock:
            copies = self._current(topics.state_topic(topology, component), topology, component)
            for candidate in _meanings(key):
                for copy in copies:
                    if candidate in copy:
                        return copy[candidate]
        raise NoSuchState(f"the state of {component} in {topology} has no key {key!r}")

    def close(self) -> None:
        for copies in self._copies.values():
            for copy in copies:
                copy.close()
        self._directory.cleanup()

    def _current(self, topic: str, topology: str, component: str) -> list[TaskState]:
        """The state of every task, as committed now."""
        if topic not in self._copies:
            partitions = self._partitions(topic)
            if not partitions:
                raise NoSuchState(f"{component} is no stateful bolt of a topology {topology} in this log")
            self._copies[topic] = [
                TaskState(DiskStore(Path(self._directory.name) / f"{topic}-{index}", self._values))
                for index in range(partitions)
            ]
        for index, copy in enumerate(self._copies[topic]):
            restore(self._config, (topic, index), copy, self._values)
        return self._copies[topic]

    def _partitions(self, topic: str) -> int:
        consumer = Consumer(self._config)
        try:
            listed = consumer.list_topics(timeout=TIMEOUT_SECONDS).topics
        finally:
            consumer.close()
        return len(listed[topic].partitions) if topic in listed else 0


def _meanings(key: str) -> Iterator[Any]:
    yield key
    try:
        parsed = json.loads(key)
    except ValueError:
        return
    yield _hashable(parsed)


def _hashable(value: Any) -> Any:
    return tuple(_hashable(item) for item in value) if isinstance(value, list) else value
