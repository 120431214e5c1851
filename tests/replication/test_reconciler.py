"""The reconciler: partitions become what the newest image says, each as soon as its log is open."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millrace.clock import Clock
from millrace.cluster.image import NO_LEADER, BrokerImage, PartitionState
from millrace.config import BrokerConfig
from millrace.disk import Disk
from millrace.errors import Error, KafkaError
from millrace.node import Node as RealNode
from millrace.node import open_node
from millrace.storage.log import Log
from millrace.storage.log_dir import LogDir
from millrace.storage.recovery import RecoveryInterrupted
from millrace.timers import LoopTimers

from ..node import Node, OpenNode, finish
from ..records import batch

HERE, ELSEWHERE = 1, 2


class SlowNode:
    """A broker whose logs open when the test opens them; other work in threads is done at once."""

    def __init__(self, path: Path) -> None:
        self.log_dir = LogDir(path, Disk())
        self.loop = asyncio.new_event_loop()
        self.pending: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        self.slow = True
        config = BrokerConfig.from_properties({})
        self.node: RealNode = open_node(
            config,
            [self.log_dir],
            clock=Clock(),
            disk=Disk(),
            timers=LoopTimers(self.loop),
            loop=self.loop,
            run_in_thread=self._run,
        )
        self.run(self.node.start(BrokerImage(HERE)))

    def _run(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        done = self.loop.create_future()
        self.pending.append((work, done))
        if not (self.slow and getattr(work, "__name__", "") == "open_log"):
            self.complete()
        return done

    def complete(self) -> None:
        """Do the work that was started last."""
        work, done = self.pending.pop()
        try:
            done.set_result(work())
        except Exception as error:
            done.set_exception(error)

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def turn(self) -> None:
        for _ in range(5):
            self.run(asyncio.sleep(0))

    def error_of(self, topic: str, index: int = 0) -> Error:
        with pytest.raises(KafkaError) as refused:
            self.node.partitions.leader(topic, index)
        return refused.value.error

    def close(self) -> None:
        self.node.partitions.abandon()
        self.loop.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def slow(path: Path) -> Iterator[SlowNode]:
    """A broker on the directory of one that was killed with two topics of a record each."""
    node = Node(path)
    opened = node.open()
    for topic in ("first", "second"):
        opened.create_topic(topic, 1)
        opened.partitions.leader(topic, 0).append_as_leader(memoryview(batch(b"value")))
    node.kill()
    slow = SlowNode(path)
    yield slow
    slow.close()


def test_a_partition_is_served_as_soon_as_its_own_log_is_open(slow: SlowNode) -> None:
    assert slow.node.reconciler.opening == 2
    assert slow.error_of("first") is Error.NOT_LEADER_OR_FOLLOWER
    assert slow.error_of("third") is Error.UNKNOWN_TOPIC_OR_PARTITION
    slow.complete()
    slow.turn()
    assert slow.node.partitions.leader("second", 0).high_watermark == 1
    assert slow.error_of("first") is Error.NOT_LEADER_OR_FOLLOWER
    slow.complete()
    slow.turn()
    assert slow.node.partitions.leader("first", 0).high_watermark == 1
    assert slow.node.reconciler.opening == 0


def test_a_topic_can_be_created_while_others_are_recovered(slow: SlowNode) -> None:
    slow.slow = False
    slow.run(slow.node.metadata.create_topic("third", 1))
    assert slow.node.partitions.leader("third", 0).high_watermark == 0
    assert slow.node.reconciler.opening == 2


def test_other_work_gets_turns_while_a_large_topic_is_created(slow: SlowNode) -> None:
    creating = slow.loop.create_task(slow.node.metadata.create_topic("large", 3000))
    # A busy machine makes a turn longer, but not fewer of them. Without turns it is one.
    begun: set[int] = set()
    while len(slow.pending) < 3000:
        slow.run(asyncio.sleep(0))
        begun.add(len(slow.pending))
    assert len(begun) > 3
    while slow.pending:
        slow.complete()
    slow.run(creating)
    assert len(slow.node.partitions.of_topic("large")) == 3000


def test_a_topic_deleted_before_all_its_logs_are_opened_leaves_nothing(slow: SlowNode, path: Path) -> None:
    slow.slow = False
    creating = slow.loop.create_task(slow.node.metadata.create_topic("large", 3000))
    while not slow.node.partitions.of_topic("large"):
        slow.run(asyncio.sleep(0))
    assert len(slow.node.partitions.of_topic("large")) < 3000
    slow.run(slow.node.metadata.delete_topic(slow.node.metadata.image.topics["large"]))
    slow.run(creating)
    assert not slow.node.partitions.of_topic("large")
    assert not list(path.glob("large-*[0-9]"))


def test_configs_set_while_a_log_is_opened_hold(slow: SlowNode) -> None:
    slow.run(slow.node.metadata.set_topic_configs("second", {"retention.ms": "5"}))
    slow.complete()
    slow.turn()
    assert slow.node.partitions.leader("second", 0).log.config.retention_ms == 5


def test_a_topic_deleted_while_its_log_is_opened_leaves_nothing(slow: SlowNode, path: Path) -> None:
    topic = slow.node.metadata.image.topics["second"]
    slow.run(slow.node.metadata.delete_topic(topic))
    assert slow.error_of("second") is Error.UNKNOWN_TOPIC_OR_PARTITION
    slow.slow = False
    slow.complete()
    slow.turn()
    assert slow.node.partitions.find("second", 0) is None
    assert not (path / "second-0").exists()


def test_a_topic_created_again_while_its_old_log_is_opened_starts_empty(slow: SlowNode) -> None:
    topic = slow.node.metadata.image.topics["second"]
    slow.run(slow.node.metadata.delete_topic(topic))
    creating = slow.loop.create_task(slow.node.metadata.create_topic("second", 1))
    slow.turn()
    slow.slow = False
    slow.complete()
    created = slow.run(creating)
    slow.turn()
    partition = slow.node.partitions.leader("second", 0)
    assert (partition.topic_id, partition.high_watermark) == (created.topic_id, 0)


def test_a_stop_opens_no_further_log_and_is_not_clean(slow: SlowNode, path: Path) -> None:
    slow.complete()
    slow.turn()
    stopping = slow.loop.create_task(slow.node.stop())
    slow.turn()
    assert not stopping.done()
    slow.complete()
    slow.run(asyncio.wait_for(stopping, 5))
    assert slow.node.partitions.find("first", 0) is None
    slow.node.partitions.close()
    assert not (path / ".kafka_cleanshutdown").exists()
    reopened = Node(path).open()
    assert reopened.partitions.leader("first", 0).high_watermark == 1
    reopened.partitions.abandon()


def test_a_stop_while_a_topic_is_created_is_clean(tmp_path: Path) -> None:
    slow = SlowNode(tmp_path)
    creating = slow.loop.create_task(slow.node.metadata.create_topic("orders", 2))
    slow.turn()
    # One log is open, the other is still unopened.
    slow.complete()
    stopping = slow.loop.create_task(slow.node.stop())
    slow.turn()
    slow.complete()
    slow.run(asyncio.wait((creating, stopping), timeout=5))
    slow.node.partitions.close()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    slow.loop.close()


def test_the_recovery_of_a_log_ends_between_two_segments_when_the_broker_stops(path: Path) -> None:
    node = Node(path)
    opened = node.open()
    opened.create_topic("orders", 1)
    log = opened.partitions.leader("orders", 0).log
    for _ in range(3):
        log.append(memoryview(batch(b"value")), leader_epoch=0)
        log.roll()
    node.kill()
    answers = iter((False, True))
    with pytest.raises(RecoveryInterrupted):
        Log.open(path / "orders-0", log.config, clock=Clock(), disk=Disk(), interrupted=lambda: next(answers))
    assert next(answers, None) is None


# Opened logs in the image


def test_a_log_that_cannot_be_opened_has_no_leader_in_the_image(path: Path) -> None:
    node = Node(path)
    node.open().create_topic("orders", 2)
    node.kill()
    log = path / "orders-1" / f"{0:020d}.log"
    log.unlink()
    log.mkdir()
    opened = node.open()
    healthy, broken = opened.topics["orders"].states
    assert healthy == PartitionState((HERE,), HERE, 0, (HERE,))
    assert broken == PartitionState((HERE,), NO_LEADER, 0, (), offline=(HERE,))
    assert opened.image.offline_replicas(broken) == [HERE]
    node.kill()
    log.rmdir()
    assert node.open().topics["orders"].states[1].leader == HERE
    node.kill()


def test_epochs_of_a_directory_that_kafka_used_do_not_go_back(path: Path) -> None:
    node = Node(path)
    opened = node.open()
    opened.create_topic("orders", 1)
    log: Log = opened.partitions.leader("orders", 0).log
    log.append(memoryview(batch(b"value")), leader_epoch=7)
    log.flush()
    again = node.reopen()
    assert again.topics["orders"].states[0].leader_epoch == 7
    assert again.partitions.leader("orders", 0).leader_epoch == 7
    assert node.reopen().topics["orders"].states[0].leader_epoch == 7
    node.kill()


# Leading and following


def move(opened: OpenNode, leader: int, epoch: int) -> None:
    state = opened.topics["orders"].states[0]._replace(leader=leader, leader_epoch=epoch)
    finish(opened.node.metadata.alter_partitions({"orders": {0: state}}))


def test_leadership_comes_and_goes_with_the_image(path: Path) -> None:
    node = Node(path)
    opened = node.open()
    events: list[tuple[object, ...]] = []
    opened.node.reconciler.on_elected["orders"] = lambda *event: events.append(("elected", *event))
    opened.node.reconciler.on_resigned["orders"] = lambda *event: events.append(("resigned", *event))
    opened.create_topic("orders", 1)
    move(opened, ELSEWHERE, 1)
    with pytest.raises(KafkaError) as refused:
        opened.partitions.leader("orders", 0)
    assert refused.value.error is Error.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError) as refused:
        opened.partitions.leader_by_id(opened.topics["orders"].topic_id, 0)
    assert refused.value.error is Error.NOT_LEADER_OR_FOLLOWER
    move(opened, HERE, 2)
    assert opened.partitions.leader("orders", 0).leader_epoch == 2
    move(opened, HERE, 3)
    assert events == [("elected", 0, 0), ("resigned", 0), ("elected", 0, 2), ("elected", 0, 3)]
    node.kill()


def test_a_replica_that_moves_away_is_removed(path: Path) -> None:
    node = Node(path)
    opened = node.open()
    opened.create_topic("orders", 1)
    finish(
        opened.node.metadata.alter_partitions(
            {"orders": {0: PartitionState((ELSEWHERE,), ELSEWHERE, 1, (ELSEWHERE,))}}
        )
    )
    assert opened.partitions.find("orders", 0) is None
    assert not (path / "orders-0").exists()
    node.kill()
