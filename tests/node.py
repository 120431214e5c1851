"""A single broker without its network: topics and logs on a data directory, to be killed and reopened."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from millrace.clock import Clock
from millrace.cluster.image import BrokerImage, ClusterImage, Endpoint, TopicImage
from millrace.cluster.store import MetadataStore
from millrace.config import BrokerConfig, LogConfig
from millrace.disk import Disk
from millrace.node import Node as RealNode
from millrace.node import open_node
from millrace.replication.hosted_partitions import HostedPartitions
from millrace.storage.log_dir import LogDir
from millrace.timers import LoopTimers, Timers

T = TypeVar("T")

ENDPOINTS = {"PLAINTEXT": Endpoint("broker.example", 19092)}


def finish(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never has to wait; it runs without a loop."""
    try:
        while work.send(None) is None:
            pass
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]  # StopIteration does not know its type
    work.close()
    raise AssertionError("the coroutine waits for something")


class Node:
    """A data directory, and the broker that is open on it."""

    def __init__(
        self,
        *directories: Path,
        disk: Disk | None = None,
        clock: Clock | None = None,
        timers: Timers | None = None,
    ) -> None:
        self.directories: Sequence[Path] = directories
        self.disk = disk or Disk()
        self.clock = clock or Clock()
        self.timers = timers
        self.partitions: HostedPartitions | None = None

    def open(self, properties: dict[str, str] | None = None) -> "OpenNode":
        config = BrokerConfig.from_properties(properties or {})
        log_dirs = [LogDir(path, self.disk) for path in self.directories]
        loop = asyncio.new_event_loop()
        try:
            node = open_node(
                config,
                log_dirs,
                clock=self.clock,
                disk=self.disk,
                timers=LoopTimers(loop) if self.timers is None else self.timers,
                loop=loop,
                run_in_thread=lambda work: run_now(work, loop),
            )
            self.partitions = node.partitions
            loop.run_until_complete(self._start(node))
        except BaseException:
            for log_dir in log_dirs:
                log_dir.close()
            raise
        return OpenNode(node)

    async def _start(self, node: RealNode) -> None:
        await node.start(BrokerImage(node.config.node_id, ENDPOINTS, node.config.broker_rack))
        await node.settled()

    def kill(self) -> None:
        """Release everything as a killed process would."""
        if self.partitions is not None:
            self.partitions.abandon()
            self.partitions = None

    def reopen(self, properties: dict[str, str] | None = None) -> "OpenNode":
        self.kill()
        return self.open(properties)


class OpenNode:
    """An open broker whose changes are applied at once."""

    def __init__(self, node: RealNode) -> None:
        self.node = node
        self.config = node.config
        self.partitions = node.partitions

    @property
    def image(self) -> ClusterImage:
        return self.node.metadata.image

    @property
    def topics(self) -> Mapping[str, TopicImage]:
        return self.image.topics

    def partition_count(self, topic: str) -> int | None:
        return self.image.partition_count(topic)

    def create_topic(self, name: str, *args: int, **options: Any) -> TopicImage:
        return finish(self.node.metadata.create_topic(name, *args, **options))

    def delete_topic(self, topic: TopicImage) -> None:
        finish(self.node.metadata.delete_topic(topic))

    def add_partitions(self, name: str, count: int, assignments: Any = None) -> None:
        finish(self.node.metadata.add_partitions(name, count, assignments))

    def set_topic_configs(self, name: str, settings: dict[str, str]) -> None:
        finish(self.node.metadata.set_topic_configs(name, settings))

    def set_broker_configs(self, broker: str, settings: dict[str, str]) -> None:
        finish(self.node.metadata.set_broker_configs(broker, settings))

    def log_config(self, name: str) -> LogConfig:
        return self.config.log_config(dict(self.topics[name].configs))


def run_now(work: Callable[[], object], loop: asyncio.AbstractEventLoop) -> asyncio.Future[Any]:
    """Run the work of a thread at once."""
    done = loop.create_future()
    try:
        done.set_result(work())
    except Exception as error:
        done.set_exception(error)
    return done


class HasMetadata(Protocol):
    """A handler's context, or a node."""

    @property
    def metadata(self) -> MetadataStore: ...


def create_topic(of: HasMetadata, name: str, *args: int, **options: Any) -> TopicImage:
    return finish(of.metadata.create_topic(name, *args, **options))


def delete_topic(of: HasMetadata, topic: TopicImage) -> None:
    finish(of.metadata.delete_topic(topic))
