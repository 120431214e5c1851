"""Subscriptions, and the tree that finds those that match a topic."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from millrace.mqtt.messages import Message, Positions

S = TypeVar("S", bound=Hashable)

CACHED_TOPICS = 10_000
CACHED_LENGTH = 200


@dataclass(slots=True)
class Subscription:
    """A topic filter that a session, or a group of sessions, has subscribed."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    identifier: int | None = None
    since: Positions = field(default_factory=dict)
    """Only messages from these offsets on belong to the subscription."""

    def wants(self, message: Message, client_id: str) -> bool:
        if message.source is not None and message.offset < self.since.get(message.source, 0):
            return False
        return not (self.no_local and message.publisher == client_id)


class _Node(Generic[S]):
    __slots__ = ("children", "here", "rest")

    def __init__(self) -> None:
        self.children: dict[str, _Node[S]] = {}
        self.here: dict[S, Subscription] = {}
        """Subscriptions whose filter ends at this level."""
        self.rest: dict[S, Subscription] = {}
        """Those whose filter ends with # below this level."""


class SubscriptionTree(Generic[S]):
    """Topic filters by their levels. Owned by the event loop."""

    def __init__(self) -> None:
        self._root: _Node[S] = _Node()
        self._found: dict[str, list[tuple[S, list[Subscription]]]] = {}
        self.size = 0

    def add(self, subscriber: S, subscription: Subscription) -> None:
        """Add a subscription, in place of the subscriber's earlier one with the same filter."""
        node = self._root
        levels = subscription.filter.split("/")
        is_open = levels[-1] == "#"
        for level in levels[:-1] if is_open else levels:
            node = node.children.setdefault(level, _Node())
        held = node.rest if is_open else node.here
        self.size += subscriber not in held
        held[subscriber] = subscription
        self._found.clear()

    def remove(self, subscriber: S, topic_filter: str) -> None:
        levels = topic_filter.split("/")
        is_open = levels[-1] == "#"
        path = [self._root]
        for level in levels[:-1] if is_open else levels:
            child = path[-1].children.get(level)
            if child is None:
                return
            path.append(child)
        held = path[-1].rest if is_open else path[-1].here
        self.size -= held.pop(subscriber, None) is not None
        for depth in range(len(path) - 1, 0, -1):
            node = path[depth]
            if node.children or node.here or node.rest:
                break
            del path[depth - 1].children[levels[depth - 1]]
        self._found.clear()

    def matching(self, topic: str) -> list[tuple[S, list[Subscription]]]:
        """The subscribers of a topic, each with its subscriptions that match."""
        found = self._found.get(topic)
        if found is None:
            by_subscriber: dict[S, list[Subscription]] = {}
            for held in self._search(topic):
                for subscriber, subscription in held.items():
                    by_subscriber.setdefault(subscriber, []).append(subscription)
            found = list(by_subscriber.items())
            if len(topic) <= CACHED_LENGTH:
                if len(self._found) >= CACHED_TOPICS:
                    self._found.clear()
                self._found[topic] = found
        return found

    def _search(self, topic: str) -> Iterator[dict[S, Subscription]]:
        levels = topic.split("/")
        nodes = [self._root]
        for depth, level in enumerate(levels):
            # Wildcards at the start do not match topics such as $SYS.
            wildcards = depth > 0 or not topic.startswith("$")
            following = []
            for node in nodes:
                if wildcards and node.rest:
                    yield node.rest
                child = node.children.get(level)
                if child is not None:
                    following.append(child)
                child = node.children.get("+") if wildcards else None
                if child is not None:
                    following.append(child)
            nodes = following
        for node in nodes:
            yield node.here
            yield node.rest
