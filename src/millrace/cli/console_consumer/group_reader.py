"""Reads topics as a member of a consumer group."""

import random
import re
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import TopicPartition

from millrace.cli.console_consumer.reader import Reader
from millrace.cli.terminal.errors import CommandError
from millrace.cli.terminal.options import Target
from millrace.errors import Error, check

# Pauses between looks for topics: short until there is one, then long.
LOOK_SOON_SECONDS = 0.5
LOOK_AGAIN_SECONDS = 10.0
# A new group waits for more members before it assigns partitions; the timeout does not run until then.
JOIN_SECONDS = 30.0

_NOT_THERE_YET = (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.LEADER_NOT_AVAILABLE)


def group_properties(given: str | None, properties: Mapping[str, str], own_name: str) -> dict[str, str]:
    """Settings of the group to join: the given one, else one with a random name that commits nothing."""
    named = {name for name in (given, properties.get("group.id")) if name is not None}
    if len(named) > 1:
        detected = ", ".join(f"'{name}'" for name in sorted(named))
        raise CommandError(
            "The group ids provided in different places (directly using '--group', via '--consumer-property',"
            f" or via '--consumer.config') do not match. Detected group ids: {detected}"
        )
    if named:
        return {"group.id": named.pop()}
    group = {"group.id": f"{own_name}-{random.randrange(100_000)}"}
    # No later run continues from there.
    return group if "enable.auto.commit" in properties else {**group, "enable.auto.commit": "false"}


class RebalanceTime:
    """Measures how long a member was without partitions because its group was rebalancing."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.has_been_assigned = False
        self._since = time.monotonic()
        self._owned: set[tuple[str, int]] = set()

    def assigned(self, _: Any, partitions: list[TopicPartition]) -> None:
        self.has_been_assigned = True
        if not self._owned:
            self.seconds += time.monotonic() - self._since
        self._owned |= _places(partitions)

    def revoked(self, _: Any, partitions: list[TopicPartition]) -> None:
        self._owned -= _places(partitions)
        if not self._owned:
            self._since = time.monotonic()


class GroupReader(Reader):
    """A member of a group that reads one topic, or every topic that matches a pattern."""

    def __init__(
        self,
        target: Target,
        properties: Mapping[str, str],
        *,
        topic: str | None,
        pattern: re.Pattern[str] | None,
        more_settings: Mapping[str, object] | None = None,
    ) -> None:
        refresh = {"topic.metadata.refresh.interval.ms": str(round(LOOK_AGAIN_SECONDS * 1000))}
        super().__init__(target, {**refresh, **properties}, more_settings=more_settings)
        self.rebalances = RebalanceTime()
        self._topic = topic
        self._pattern = pattern
        self._subscribed: list[str] = []
        self._look_at = 0.0
        self._join_by = 0.0

    def look_around(self) -> bool:
        """Subscribe to the topics that exist, and later to new ones that match."""
        now = time.monotonic()
        if now >= self._look_at:
            topics = self._existing()
            if topics != self._subscribed:
                self._consumer.subscribe(
                    topics, on_assign=self.rebalances.assigned, on_revoke=self.rebalances.revoked
                )
                self._subscribed, self._join_by = topics, now + JOIN_SECONDS
            self._look_at = self._next_look(now)
        return self.rebalances.has_been_assigned or not self._subscribed or now >= self._join_by

    def _next_look(self, now: float) -> float:
        if not self._subscribed:
            return now + LOOK_SOON_SECONDS
        return float("inf") if self._pattern is None else now + LOOK_AGAIN_SECONDS

    def _existing(self) -> list[str]:
        wanted = None if self._topic is None else [self._topic]
        topics = self._session.run(self._session.client.metadata(wanted, create=True)).topics
        names = []
        for topic in topics:
            name = topic.name or ""
            if self._pattern is not None and (topic.is_internal or not self._pattern.match(name)):
                continue
            if topic.error_code not in _NOT_THERE_YET:
                check(topic.error_code)
                names.append(name)
        return sorted(names)


def _places(partitions: list[TopicPartition]) -> set[tuple[str, int]]:
    return {(partition.topic, partition.partition) for partition in partitions}
