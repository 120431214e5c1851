"""Random lives of consumer groups: whatever happens, no partition has two owners, and all comes to rest."""

import random
from pathlib import Path

import pytest

from millrace.errors import KafkaError
from millrace.groups.assignors.spec import Partition

from .consumers import (
    ASSIGNMENT_INTERVAL_MS,
    HEARTBEAT_MS,
    SESSION_MS,
    Consumer,
    cluster_of,
    group_of,
    settle,
)
from .members import GROUP, Coordinator
from .test_consumer_restart import kept

TOPICS = ("orders", "returns", "orders-eu")
SUBSCRIPTIONS = (("orders",), ("orders", "returns"), ("orders-eu",), ())
REGEXES = (None, None, "orders.*", "r.*")
STEPS = 120


class Life:
    """One group, its members, and all that can happen to them."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.coordinator = Coordinator(directory)
        self.members: list[Consumer] = []
        self.heard_ms: dict[Consumer, int] = {}
        self.away: list[Consumer] = []
        self._instances = 0
        for name in TOPICS[:2]:
            cluster_of(self.coordinator).create_topic(name, self.random.randint(1, 6))

    def live(self) -> None:
        happenings = {
            self.heartbeat: 60,
            self.join: 8,
            self.leave: 3,
            self.resubscribe: 4,
            self.go_away: 3,
            self.come_back: 4,
            self.go_silent: 2,
            self.lose_an_answer: 6,
            self.grow_topic: 3,
            self.swap_topic: 2,
            self.pass_time: 10,
            self.restart: 4,
        }
        for _ in range(STEPS):
            (happening,) = self.random.choices(list(happenings), list(happenings.values()))
            happening()
            self.check()

    def check(self) -> None:
        """Neither the members nor the coordinator have a partition twice."""
        owners: dict[Partition, Consumer] = {}
        for member in self.members:
            for partition in member.owned:
                assert partition not in owners
                owners[partition] = member
        group = self.coordinator.groups.find(GROUP)
        if group is not None:
            seen: set[Partition] = set()
            for known in group_of(self.coordinator).members.values():
                parts = known.assigned.keys() | known.revoking.keys()
                assert not parts & seen
                seen |= parts
            assert seen == group_of(self.coordinator).owners.keys()

    def heartbeat(self, *, lose_answer: bool = False) -> None:
        if self.members:
            self._beat(self.random.choice(self.members), lose_answer=lose_answer)

    def lose_an_answer(self) -> None:
        self.heartbeat(lose_answer=True)

    def _beat(self, member: Consumer, *, lose_answer: bool = False) -> None:
        try:
            member.beat(lose_answer=lose_answer)
        except KafkaError:
            # Fenced: it gives up everything and joins again.
            member.join()
        self.heard_ms[member] = self.coordinator.clock.now_ms()

    def join(self) -> None:
        self._instances += 1
        instance = f"instance-{self._instances}" if self.random.random() < 0.3 else None
        member = Consumer(
            self.coordinator,
            *self.random.choice(SUBSCRIPTIONS),
            regex=self.random.choice(REGEXES),
            instance=instance,
            assignor=self.random.choice([None, None, "uniform", "range"]),
        )
        self.members.append(member)
        member.join()
        self.heard_ms[member] = self.coordinator.clock.now_ms()

    def _pick(self) -> Consumer | None:
        return self.members.pop(self.random.randrange(len(self.members))) if self.members else None

    def leave(self) -> None:
        member = self._pick()
        if member is not None and self._is_alive(member):
            member.leave()

    def go_silent(self) -> None:
        self._pick()

    def go_away(self) -> None:
        statics = [member for member in self.members if member.instance and self._is_alive(member)]
        if statics:
            member = self.random.choice(statics)
            self.members.remove(member)
            member.leave(-2)
            self.away.append(member)

    def come_back(self) -> None:
        if self.away:
            again = self.away.pop().restarted()
            self.members.append(again)
            again.join()
            self.heard_ms[again] = self.coordinator.clock.now_ms()

    def resubscribe(self) -> None:
        if self.members:
            member = self.random.choice(self.members)
            member.resubscribe(*self.random.choice(SUBSCRIPTIONS), regex=self.random.choice(REGEXES) or "")
            self._beat(member)

    def grow_topic(self) -> None:
        cluster = cluster_of(self.coordinator)
        topic = cluster.topics.get(self.random.choice(TOPICS))
        if topic is not None:
            cluster.add_partitions(topic.name, topic.partitions + 1, None)

    def swap_topic(self) -> None:
        cluster = cluster_of(self.coordinator)
        name = self.random.choice(TOPICS)
        if name in cluster.topics:
            cluster.delete_topic(cluster.topics[name])
        else:
            cluster.create_topic(name, self.random.randint(1, 6))

    def pass_time(self) -> None:
        self.coordinator.advance(self.random.choice([100, ASSIGNMENT_INTERVAL_MS, HEARTBEAT_MS, 20_000]))
        for member in self.members:
            if not self._is_alive(member):
                # It knows itself that it was away for too long.
                member.owned = set()

    def _is_alive(self, member: Consumer) -> bool:
        group = group_of(self.coordinator)
        return member.member_id in group.members

    def restart(self) -> None:
        before = self.coordinator.groups.find(GROUP)
        state = None if before is None else kept(group_of(self.coordinator))
        self.coordinator.restart()
        if state is not None:
            assert kept(group_of(self.coordinator)) == state

    def come_to_rest(self) -> None:
        """Let all remaining members heartbeat, and check that every partition has its owner."""
        self.coordinator.advance(SESSION_MS - HEARTBEAT_MS)
        for member in self.members:
            self._beat(member)
        self.coordinator.advance(HEARTBEAT_MS)
        for member in self.members:
            self._beat(member)
        self.check()
        if not self.members:
            return
        settle(self.coordinator, *self.members, rounds=30)
        self.check()
        group = group_of(self.coordinator)
        for member in self.members:
            assert member.owned == group.targets[member.member_id]
        cluster = cluster_of(self.coordinator)
        subscribed = group.subscribed_topics() & cluster.topics.keys()
        expected = {
            (cluster.topics[name].topic_id, index)
            for name in subscribed
            for index in range(cluster.topics[name].partitions)
        }
        assert group.owners.keys() == expected, "a partition has no owner"


@pytest.mark.parametrize("seed", range(12))
def test_a_random_life(tmp_path: Path, seed: int) -> None:
    life = Life(tmp_path / "data", seed)
    try:
        life.live()
        life.come_to_rest()
    finally:
        life.coordinator.kill()
