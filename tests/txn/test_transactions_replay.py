"""The coordinator's state is what its log says: replaying the log gives the same state, at any time."""

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from millrace.errors import KafkaError
from millrace.txn.coordinator import TRANSACTION_TOPIC
from millrace.txn.shard import SCHEMAS, TransactionShard
from millrace.txn.transaction_state import ProducerIdentity, Transaction

from ..coordinator.replaying import replay
from .coordinator import Coordinator, MortalDisk

IDS = ("one", "two", "three")
STEPS = 120


class Walk:
    """Random requests of a few producers, some of them out of place, on a disk that fails now and then."""

    def __init__(self, coordinator: Coordinator, disk: MortalDisk, seed: int) -> None:
        self.coordinator = coordinator
        self.disk = disk
        self.random = random.Random(seed)
        self.producers: dict[str, ProducerIdentity] = {}
        self.steps: list[Callable[[str], object]] = [
            self.init,
            self.go_on,
            self.add,
            self.end,
            self.pass_time,
        ]

    def step(self) -> None:
        if self.random.random() < 0.1:
            self.disk.fail_after(self.random.randrange(4))
        # A request that is refused changes nothing.
        with suppress(KafkaError):
            self.random.choice(self.steps)(self.random.choice(IDS))
        self.disk.fail_after(-1)

    def init(self, transactional_id: str) -> None:
        self.producers[transactional_id] = self.coordinator.init(transactional_id)

    def go_on(self, transactional_id: str) -> None:
        expected = self.producers.get(transactional_id)
        self.producers[transactional_id] = self.coordinator.init(transactional_id, expected)

    def add(self, transactional_id: str) -> None:
        partition = (self.random.choice("tu"), self.random.randrange(2))
        self.coordinator.add(self._producer(transactional_id), partition, transactional_id=transactional_id)

    def end(self, transactional_id: str) -> None:
        self.producers[transactional_id] = self.coordinator.end(
            self._producer(transactional_id),
            committed=self.random.random() < 0.5,
            new=self.random.random() < 0.5,
            transactional_id=transactional_id,
        )

    def pass_time(self, _: str) -> None:
        self.coordinator.timers.advance(self.random.choice((1000, 20_000, 70_000)))

    def _producer(self, transactional_id: str) -> ProducerIdentity:
        return self.producers.get(transactional_id, ProducerIdentity(99, 0))


def states(coordinator: Coordinator) -> dict[str, Transaction]:
    return {transaction.transactional_id: transaction for transaction in coordinator.transactions}


def replayed(coordinator: Coordinator) -> dict[str, Transaction]:
    """The states that another coordinator finds in the log."""
    found: dict[str, Transaction] = {}
    for partition in coordinator.cluster.partitions.of_topic(TRANSACTION_TOPIC):
        shard = TransactionShard(partition.index, lambda _: None, lambda _: None)
        found |= replay(partition, shard, SCHEMAS).transactions
    return found


@pytest.mark.parametrize("seed", range(15))
def test_replaying_the_log_gives_the_present_state(tmp_path: Path, seed: int) -> None:
    disk = MortalDisk()
    coordinator = Coordinator(tmp_path / "data", disk)
    for topic in ("t", "u"):
        coordinator.create_topic(topic)
    walk = Walk(coordinator, disk, seed)
    for _ in range(STEPS):
        walk.step()
        assert states(coordinator) == replayed(coordinator)
    assert states(coordinator)
    coordinator.node.kill()
