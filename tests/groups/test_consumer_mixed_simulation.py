"""Random lives of groups whose members speak both protocols: still no partition has two owners."""

import random
from pathlib import Path

import pytest

from millrace.errors import Error, KafkaError

from .classic_consumers import ClassicConsumer
from .consumers import ASSIGNMENT_INTERVAL_MS, Consumer, cluster_of, group_of
from .members import SESSION_MS, Coordinator

STEPS = 150


class Life:
    """A group with one member of the consumer protocol that never goes, and others of both that do."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.coordinator = Coordinator(directory)
        self.partitions = self.random.randint(3, 8)
        cluster_of(self.coordinator).create_topic("orders", self.partitions)
        self.anchor = Consumer(self.coordinator)
        self.members: list[Consumer | ClassicConsumer] = [self.anchor]
        self.anchor.join()

    def live(self) -> None:
        happenings = {
            self.heartbeat: 70,
            self.join: 4,
            self.join_classic: 6,
            self.leave: 4,
            self.grow: 2,
            self.pass_time: 15,
            self.restart: 3,
        }
        for _ in range(STEPS):
            (happening,) = self.random.choices(list(happenings), list(happenings.values()))
            happening()
            self.check()

    def check(self) -> None:
        owned = [index for member in self.members for index in indexes_of(member)]
        assert len(owned) == len(set(owned))

    def heartbeat(self) -> None:
        self.beat(self.random.choice(self.members))

    def beat(self, member: Consumer | ClassicConsumer) -> None:
        if isinstance(member, Consumer):
            try:
                member.beat()
            except KafkaError:
                member.join()
            return
        if member.follow() not in (Error.NONE, Error.REBALANCE_IN_PROGRESS):
            # It is out: it starts from nothing.
            member.own()
            member.member_id = ""
            self.enter(member)

    def enter(self, member: ClassicConsumer) -> None:
        assert member.enter().error is Error.NONE
        if member.sync().error is Error.NONE:
            member.take()

    def join(self) -> None:
        member = Consumer(self.coordinator)
        member.join()
        self.members.append(member)

    def join_classic(self) -> None:
        member = ClassicConsumer(self.coordinator)
        self.members.append(member)
        self.enter(member)

    def leave(self) -> None:
        if len(self.members) > 1:
            self.members.pop(self.random.randrange(1, len(self.members))).leave()

    def grow(self) -> None:
        self.partitions += 1
        cluster_of(self.coordinator).add_partitions("orders", self.partitions, None)

    def pass_time(self) -> None:
        # Never so long that anybody's session ends.
        for member in self.members:
            self.beat(member)
            self.check()
        self.coordinator.advance(self.random.choice([100, ASSIGNMENT_INTERVAL_MS, SESSION_MS // 2]))

    def restart(self) -> None:
        before = dict(group_of(self.coordinator).members)
        self.coordinator.restart()
        assert group_of(self.coordinator).members == before

    def come_to_rest(self) -> None:
        for _ in range(40):
            self.coordinator.advance(ASSIGNMENT_INTERVAL_MS)
            for member in self.members:
                self.beat(member)
                self.check()
        assert group_of(self.coordinator).state == "Stable"
        owned = sorted(index for member in self.members for index in indexes_of(member))
        assert owned == list(range(self.partitions))


def indexes_of(member: Consumer | ClassicConsumer) -> list[int]:
    return member.indexes if isinstance(member, Consumer) else sorted(member.owned)


@pytest.mark.parametrize("seed", range(8))
def test_a_random_life(tmp_path: Path, seed: int) -> None:
    life = Life(tmp_path / "data", seed)
    try:
        life.live()
        life.come_to_rest()
    finally:
        life.coordinator.kill()
