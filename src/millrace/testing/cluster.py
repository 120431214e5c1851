"""Several brokers of one cluster: in this process over an ensemble in memory, or real ones with ZooKeeper."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from millrace.cluster.image import ClusterImage, PartitionState
from millrace.replication.partition import Role
from millrace.testing.broker import Broker, BrokerProcess
from millrace.testing.ensemble import MemoryEnsemble, MemorySession
from millrace.zookeeper_server import ZooKeeperServer

WAIT_SECONDS = 60.0
QUICK = {
    "replica.lag.time.max.ms": "10000",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


class Member(Broker):
    """One broker of a `Cluster`. `kill9` lets its session end at once, as if its timeout had passed."""

    def __init__(self, ensemble: MemoryEnsemble, number: int, properties: Mapping[str, str]) -> None:
        super().__init__({**QUICK, **properties, "broker.id": str(number)})
        self.number = number
        self._memory_ensemble = ensemble
        self.session: MemorySession

    def _new_session(self) -> MemorySession:
        self.session = MemorySession(self._memory_ensemble)
        return self.session

    @property
    def image(self) -> ClusterImage:
        """The cluster as this broker sees it."""
        return self.broker.node.metadata.image

    @property
    def is_running(self) -> bool:
        return self._broker is not None

    def cut_off(self) -> None:
        """Let the ensemble be out of reach for this broker."""
        self.session.is_cut = True

    def reconnect(self) -> None:
        self.session.is_cut = False


class Cluster:
    """Brokers 1 to N.

    >>> with Cluster(3) as cluster:
    ...     print(cluster.bootstrap)
    """

    def __init__(
        self, brokers: int = 3, properties: Mapping[str, str] | None = None, *, session_seconds: float = 10.0
    ) -> None:
        """A broker that is cut off from the ensemble counts as dead after `session_seconds`."""
        self.ensemble = MemoryEnsemble(session_seconds)
        self.brokers = {
            number: Member(self.ensemble, number, properties or {}) for number in range(1, brokers + 1)
        }

    @property
    def bootstrap(self) -> str:
        """The value of bootstrap.servers for clients."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def running(self) -> list[Member]:
        return [broker for broker in self.brokers.values() if broker.is_running]

    def __enter__(self) -> Self:
        for broker in self.brokers.values():
            broker.start()
        self.wait_for(lambda image: len(image.brokers) == len(self.brokers), "all brokers to join")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for broker in self.brokers.values():
            if broker.is_running:
                broker.kill9()
            broker.remove_data()

    def state(self, topic: str, index: int = 0) -> PartitionState:
        """The state of a partition, as the first running broker knows it."""
        state = self.running[0].image.partition(topic, index)
        assert state is not None, f"there is no {topic}-{index}"
        return state

    def leader(self, topic: str, index: int = 0) -> Member:
        """The broker that leads a partition."""
        return self.brokers[self.state(topic, index).leader]

    def controller(self) -> Member:
        return self.brokers[self.running[0].image.controller]

    def wait_for(self, condition: Callable[[ClusterImage], bool], what: str) -> None:
        """Wait until a condition holds for the images of all running brokers."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not all(condition(broker.image) for broker in self.running):
            if time.monotonic() > deadline:
                states = {broker.number: broker.image.topics for broker in self.running}
                raise TimeoutError(f"waited {WAIT_SECONDS:.0f} s for {what}; the brokers see {states}")
            time.sleep(0.005)

    def wait_for_isr(self, topic: str, size: int, index: int = 0) -> None:
        """Wait until so many replicas of a partition are in sync."""

        def is_reached(image: ClusterImage) -> bool:
            state = image.partition(topic, index)
            return state is not None and len(state.isr) == size

        self.wait_for(is_reached, f"{size} replicas of {topic}-{index} in sync")
        # Images come first: the leader may still be opening its log.
        self.wait_for(lambda _: self._is_led(topic, index), f"the leader of {topic}-{index}")

    def _is_led(self, topic: str, index: int) -> bool:
        leader = self.brokers.get(self.state(topic, index).leader)
        partition = leader.broker.partitions.find(topic, index) if leader and leader.is_running else None
        return partition is not None and partition.role is Role.LEADER


class ClusterProcesses:
    """Brokers 1 to N in processes of their own, with a real ZooKeeper.

    >>> with ClusterProcesses(3) as cluster:
    ...     cluster.brokers[1].kill9()
    """

    def __init__(
        self, brokers: int = 3, properties: Mapping[str, str] | None = None, *, session_ms: int = 1500
    ) -> None:
        self.zookeeper = ZooKeeperServer()
        shared = {
            **QUICK,
            "zookeeper.connect": self.zookeeper.connect,
            "zookeeper.session.timeout.ms": str(session_ms),
            **(properties or {}),
        }
        self.brokers = {
            number: BrokerProcess({**shared, "broker.id": str(number)}) for number in range(1, brokers + 1)
        }

    @property
    def bootstrap(self) -> str:
        """The value of bootstrap.servers for clients."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def __enter__(self) -> Self:
        self.zookeeper.start()
        for broker in self.brokers.values():
            broker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for broker in self.brokers.values():
            broker.kill9()
            broker.remove_data()
        self.zookeeper.__exit__(kind, error, traceback)
