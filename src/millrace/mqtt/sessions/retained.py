"""Retained messages: the last one of each topic, in memory and in a compacted topic of the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from millrace.mqtt.messages import Message, Record, Source, headers_of, message_of
from millrace.mqtt.settings import RETAINED_TOPIC


class _Level:
    __slots__ = ("levels", "message")

    def __init__(self) -> None:
        self.levels: dict[str, _Level] = {}
        self.message: Message | None = None


class Retained:
    """Messages by the levels of their topic. Owned by the event loop."""

    def __init__(self) -> None:
        self._root = _Level()
        self.size = 0

    def put(self, message: Message) -> None:
        """Keep a message; one without payload removes the one of its topic."""
        if not message.payload:
            self._remove(message.topic)
            return
        level = self._root
        for name in message.topic.split("/"):
            level = level.levels.setdefault(name, _Level())
        self.size += level.message is None
        level.message = message

    def _remove(self, topic: str) -> None:
        names = topic.split("/")
        path = [self._root]
        for name in names:
            level = path[-1].levels.get(name)
            if level is None:
                return
            path.append(level)
        self.size -= path[-1].message is not None
        path[-1].message = None
        for depth in range(len(names), 0, -1):
            if path[depth].levels or path[depth].message is not None:
                return
            del path[depth - 1].levels[names[depth - 1]]

    def get(self, topic: str) -> Message | None:
        level: _Level | None = self._root
        for name in topic.split("/"):
            level = None if level is None else level.levels.get(name)
        return None if level is None else level.message

    def topics(self, topic_filter: str) -> Iterator[str]:
        """The topics of retained messages that a filter matches."""
        return self._search(self._root, topic_filter.split("/"), 0)

    def _search(self, level: _Level, wanted: list[str], depth: int) -> Iterator[str]:
        if depth == len(wanted):
            if level.message is not None:
                yield level.message.topic
            return
        name = wanted[depth]
        if name == "#":
            if level.message is not None:
                yield level.message.topic
            for child in level.levels.values():
                yield from self._search(child, wanted, depth)
        elif name == "+":
            for child in level.levels.values():
                yield from self._search(child, wanted, depth + 1)
        elif name in level.levels:
            yield from self._search(level.levels[name], wanted, depth + 1)

    def load(self, records: Iterable[Any]) -> None:
        """Take over what the compacted topic has."""
        for record in records:
            message = message_of(
                record.key().decode(), record.value(), record.headers() or (), record.timestamp()[1]
            )
            message.source, message.offset = Source(record.topic(), record.partition()), record.offset()
            self.put(message)


def retained_record(message: Message) -> Record:
    """The record that keeps a retained message, or removes it."""
    return Record(RETAINED_TOPIC, message.topic.encode(), message.payload or None, headers_of(message))
