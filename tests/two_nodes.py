"""Two brokers in this process, without a network: they share a metadata store and copy each other's logs."""

import asyncio
import inspect
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from millrace.api import HANDLERS_BY_KEY
from millrace.api.context import Context, Session
from millrace.api.dispatch import error_response
from millrace.clock import Clock
from millrace.cluster.image import BrokerImage, ClusterImage, PartitionState, TopicImage
from millrace.cluster.store import PartitionStates, Subscriber
from millrace.cluster.topic_rules import DEFAULT, check_topic_configs, grown_topic, new_topic
from millrace.config import BrokerConfig, Listener
from millrace.deferred import Deferred
from millrace.disk import Disk
from millrace.errors import KafkaError
from millrace.net.buffers import FrameBuffers
from millrace.node import Node, open_node
from millrace.replication.partition import Partition
from millrace.steps import finish_at_once
from millrace.storage.log_dir import LogDir
from millrace.testing import ManualClock
from millrace.testing.timers import ManualTimers
from millrace.wire.frames import RequestHeader

from .node import ENDPOINTS, run_now

FETCH_BYTES = 1 << 20
LISTENER = Listener("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT", "broker.example", 19092)
MOST_ROUNDS = 1000


class Answer:
    """The response to a request, once it has arrived."""

    def __init__(self, api_key: int) -> None:
        self._handler = HANDLERS_BY_KEY[api_key]
        self.response: Any = None

    @property
    def arrived(self) -> bool:
        return self.response is not None

    def receive(self, outcome: Any) -> None:
        is_error = isinstance(outcome, BaseException)
        self.response = error_response(self._handler, outcome) if is_error else outcome


class FakeStore:
    """A metadata store in memory that several brokers share; every change reaches all of them at once."""

    def __init__(self, config: BrokerConfig) -> None:
        self.image = ClusterImage("fake", controller=1)
        self._config = config
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    async def _publish(self, image: ClusterImage) -> None:
        self.image = image
        for subscriber in self._subscribers:
            await subscriber(image)

    async def register(self, broker: BrokerImage) -> None:
        await self._publish(self.image.with_broker(broker))

    async def create_topic(
        self,
        name: str,
        partitions: int = DEFAULT,
        replication_factor: int = DEFAULT,
        *,
        configs: Mapping[str, str] | None = None,
        assignments: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> TopicImage:
        topic = new_topic(
            self.image,
            self._config,
            name,
            partitions,
            replication_factor,
            configs=configs,
            assignments=assignments,
        )
        if not validate_only:
            await self._publish(self.image.with_topics([topic]))
        return topic

    async def delete_topic(self, topic: TopicImage) -> None:
        await self._publish(self.image.without_topic(topic))
        await self.finish_deletion(topic.topic_id)

    async def finish_deletion(self, topic_id: bytes) -> None:
        self.image = self.image.after_deletion(topic_id)

    async def add_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        topic = grown_topic(self.image, name, count, assignments)
        if not validate_only:
            await self._publish(self.image.with_topics([topic]))

    async def set_topic_configs(
        self, name: str, settings: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        check_topic_configs(self._config, settings)

    async def set_broker_configs(
        self, broker: str, settings: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        raise AssertionError("not needed here")

    async def set_group_configs(
        self, group: str, settings: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        raise AssertionError("not needed here")

    async def alter_partitions(self, states: PartitionStates) -> None:
        await self._publish(self.image.with_partition_states(states))


class TwoNodes:
    """Brokers 1 and 2. One leads every partition, the other follows when `replicate` is called."""

    def __init__(self, directory: Path, properties: dict[str, str] | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        self._timers: list[ManualTimers] = []
        shared = {"default.replication.factor": "2", **(properties or {})}
        self.store = FakeStore(BrokerConfig.from_properties(shared))
        self.nodes = {number: self._open(number, directory / str(number), shared) for number in (1, 2)}
        self.leader = 1
        for number, node in self.nodes.items():
            self.run(node.start(BrokerImage(number, ENDPOINTS)))

    def _open(self, number: int, path: Path, properties: dict[str, str]) -> Node:
        config = BrokerConfig.from_properties({**properties, "node.id": str(number)})
        disk, clock = Disk(), ManualClock(Clock().now_ms())
        timers = ManualTimers(clock)
        self._timers.append(timers)
        return open_node(
            config,
            [LogDir(path, disk)],
            clock=clock,
            disk=disk,
            timers=timers,
            loop=self.loop,
            run_in_thread=lambda work: run_now(work, self.loop),
            store=self.store,
        )

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    @property
    def leading(self) -> Node:
        return self.nodes[self.leader]

    @property
    def following(self) -> Node:
        return self.nodes[3 - self.leader]

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic that the present leader leads."""
        replicas = [self.leader, 3 - self.leader]
        self.run(self.store.create_topic(name, assignments=dict.fromkeys(range(partitions), replicas)))

    def take_lead(self) -> None:
        """Let the present leader lead every partition, as after an election."""
        self._elect(self.leader)

    def fail_over(self) -> None:
        """The other broker leads from now on, with what it has; the old leader follows it."""
        self.leader = 3 - self.leader
        self._elect(self.leader)
        self.settle()

    def _elect(self, leader: int) -> None:
        states: dict[str, dict[int, PartitionState]] = {
            topic.name: {
                index: state._replace(leader=leader, leader_epoch=state.leader_epoch + 1)
                for index, state in enumerate(topic.states)
                if state.leader != leader
            }
            for topic in self.store.image.topics.values()
        }
        self.run(self.store.alter_partitions({name: changed for name, changed in states.items() if changed}))

    def settle(self) -> None:
        """Let the coordinators load what they lead now."""
        for node in self.nodes.values():
            self.run(node.settled())

    # Requests

    def send(self, request: Any, version: int, *, to: Node | None = None) -> Answer:
        """Send a request to the leader, or to a given broker."""
        answer = Answer(request.api_key)
        header = RequestHeader(request.api_key, version, 1, "client")
        services = (to or self.leading).services(FrameBuffers(-1))
        context = Context(services, Session(LISTENER), header, version)
        try:
            outcome = HANDLERS_BY_KEY[request.api_key].handle(context, request)
            if inspect.isgenerator(outcome):
                outcome = finish_at_once(outcome)
        except KafkaError as error:
            outcome = error
        if inspect.iscoroutine(outcome):
            task = self.loop.create_task(outcome)
            task.add_done_callback(lambda done: answer.receive(done.exception() or done.result()))
        elif isinstance(outcome, Deferred):
            outcome.then(answer.receive)
        else:
            answer.receive(outcome)
        return answer

    def wait_for(self, *answers: Answer) -> None:
        """Let time pass and the follower fetch until responses have arrived."""
        for _ in range(MOST_ROUNDS):
            if all(answer.arrived for answer in answers):
                return
            self.replicate()
            self.pass_time()
        raise AssertionError("no response")

    def pass_time(self, milliseconds: int = 1) -> None:
        """Let time pass on both brokers, and everything happen that is due."""
        for timers in self._timers:
            timers.advance(milliseconds)
        self.run(asyncio.sleep(0))

    # Replication

    def replicate(self) -> None:
        """Let the follower fetch until it has everything, and knows that it is committed."""
        for partition in list(self.leading.partitions):
            copy = self.following.partitions.find(partition.topic, partition.index)
            assert copy is not None
            for _ in range(2):
                self._fetch(partition, copy)

    def _fetch(self, partition: Partition, copy: Partition) -> None:
        self._truncate(partition, copy)
        while True:
            offset = copy.log.log_end_offset
            partition.record_fetch(3 - self.leader, offset)
            content = b""
            if offset < partition.log.log_end_offset:
                piece = partition.log.read(offset, FETCH_BYTES, min_one_batch=True)
                content = b"" if piece is None else partition.log.copy(piece)
            copy.append_as_follower(memoryview(content), partition.leader_epoch, partition.high_watermark)
            if not content:
                return

    def _truncate(self, partition: Partition, copy: Partition) -> None:
        """Drop what the follower has and the leader has not, as its fetch would tell it."""
        while (epoch := copy.log.latest_epoch) is not None:
            known, end_offset = partition.epoch_end_offset(epoch)
            if known == epoch and end_offset >= copy.log.log_end_offset:
                return
            copy.truncate_to(copy.divergence(known, end_offset))
            if known == epoch:
                return

    def close(self) -> None:
        for node in self.nodes.values():
            self.run(node.stop())
            node.partitions.abandon()
        self.loop.close()
