"""Makes the partitions of this broker what the newest image says: leader, follower, offline or gone."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from millrace.cluster.image import (
    INTERNAL_TOPICS,
    NO_LEADER,
    ClusterImage,
    PartitionState,
    TopicImage,
)
from millrace.cluster.store import MetadataStore
from millrace.config import BrokerConfig, LogConfig
from millrace.errors import KafkaError
from millrace.replication.adoption import set_strays_aside
from millrace.replication.hosted_partitions import HostedPartitions
from millrace.replication.partition import Partition
from millrace.steps import Turn
from millrace.storage.log import Log
from millrace.storage.recovery import RecoveryInterrupted

logger = logging.getLogger(__name__)

Key = tuple[str, int]


class Reconciler:
    """Compares each image with the one before and acts on the difference.

    Opening a log may take long after a crash, so it happens in threads, and a partition is served as soon as
    its own log is open. The newest image then says what becomes of the partition, not the image that had its
    log opened. Owned by the broker loop; not thread-safe.
    """

    def __init__(
        self,
        store: MetadataStore,
        hosted: HostedPartitions,
        config: BrokerConfig,
        *,
        run_in_thread: Callable[[Callable[[], Log]], asyncio.Future[Log]],
    ) -> None:
        self.on_elected: dict[str, Callable[[int, int], object]] = {}
        """By topic: called with the index and epoch of each partition that this broker begins to lead."""
        self.on_resigned: dict[str, Callable[[int], object]] = {}
        """By topic: called with the index of each partition that this broker stops leading."""
        self.on_role: Callable[[Partition], object] | None = None
        """Called with each partition that begins to lead or to follow, or does so under another state."""
        self.on_deleted: list[Callable[[str], object]] = []
        """Called with the name of each topic that is deleted."""
        self._store = store
        self._hosted = hosted
        self._config = config
        self._node_id = config.node_id
        self._run_in_thread = run_in_thread
        self._seen = ClusterImage()
        self._unopened: dict[Key, None] = {}
        """Partitions whose logs are still to be opened."""
        self._opening: dict[Key, asyncio.Future[Log]] = {}
        self._reports: dict[tuple[bytes, int], Callable[[PartitionState], PartitionState]] = {}
        self._reporting: set[asyncio.Task[None]] = set()

    # Starting and stopping

    async def start(self) -> None:
        """Begin to open every log of this broker, and act on every image from now on."""
        image = self._store.image
        for topic, index in set_strays_aside(self._hosted.log_dirs, image):
            self._hosted.forget(topic, index)
        for topic_id, name in image.deleting.items():
            self._finish_deletion(topic_id, name)
            await self._store.finish_deletion(topic_id)
        self._store.subscribe(self.reconcile)
        self._compare(image)
        await self._open_logs()
        await self._send_reports()

    @property
    def opening(self) -> int:
        """The number of partitions whose logs are not open yet."""
        return len(self._opening) + len(self._unopened)

    async def settled(self) -> None:
        """Wait until every log that is being opened is open, or known to be unusable."""
        while self._opening or self._reporting:
            waiting: list[asyncio.Future[Any]] = [*self._opening.values(), *self._reporting]
            await asyncio.wait(waiting)

    async def stop(self) -> None:
        """Open no further log, and wait for the threads that open one: the lock must outlive them."""
        self._hosted.stop_opening()
        self._unopened.clear()
        await self.settled()

    def _finish_deletion(self, topic_id: bytes, name: str) -> None:
        found = {
            index
            for log_dir in self._hosted.log_dirs
            for topic, index in log_dir.partitions()
            if topic == name and log_dir.topic_id(topic, index) in (None, topic_id)
        }
        self._hosted.remove(name, found)
        logger.info("finished deleting topic %s, which was interrupted", name)

    # Comparing images

    async def reconcile(self, image: ClusterImage) -> None:
        """Act on an image; returns when the partitions that it changes are as it says."""
        changed, failures = self._compare(image)
        await self._open_logs()
        while waiting := [self._opening[key] for key in changed if key in self._opening]:
            await asyncio.wait(waiting)
        await self._send_reports()
        if failures:
            raise failures[0]

    def _compare(self, image: ClusterImage) -> tuple[list[Key], list[KafkaError]]:
        """Act on what differs from the image before; returns the partitions concerned, and what failed."""
        before, self._seen = self._seen, image
        self._hosted.image = image
        changed: list[Key] = []
        failures: list[KafkaError] = []
        for old in [old for name, old in before.topics.items() if image.topics.get(name) is not old]:
            new = image.topics.get(old.name)
            if new is None or new.topic_id != old.topic_id:
                self._remove_topic(old, failures)
        reconfigured = image.broker_configs is not before.broker_configs
        topics = image.topics.values()
        for new in _internal_first(
            new for new in topics if reconfigured or before.topics.get(new.name) is not new
        ):
            known = before.topics.get(new.name)
            if known is not None and known.topic_id != new.topic_id:
                known = None
            if known is not None and (reconfigured or new.configs != known.configs):
                self._hosted.reconfigure(new.name, self._log_config(new))
            changed += self._compare_partitions(known, new, failures)
        return changed, failures

    def _compare_partitions(
        self, old: TopicImage | None, new: TopicImage, failures: list[KafkaError]
    ) -> Iterable[Key]:
        for index, state in enumerate(new.states):
            known = old.states[index] if old is not None and index < old.partitions else None
            if state == known:
                continue
            if self._node_id in state.replicas:
                self._host(new, index)
                yield new.name, index
            elif known is not None and self._node_id in known.replicas:
                self._remove(new.name, {index}, failures)

    def _remove_topic(self, topic: TopicImage, failures: list[KafkaError]) -> None:
        self._remove(topic.name, set(range(topic.partitions)), failures)
        for notify in self.on_deleted:
            notify(topic.name)

    def _log_config(self, topic: TopicImage) -> LogConfig:
        return self._config.log_config(dict(topic.configs))

    # Partitions

    def _host(self, topic: TopicImage, index: int) -> None:
        """Lead or follow as the newest image says; first open the log, if that was not tried yet."""
        key = (topic.name, index)
        partition = self._hosted.find(*key)
        if partition is not None:
            self._assume_role(partition, topic.states[index])
        elif key not in self._opening and self._hosted.offline_reason(*key) is None:
            self._unopened[key] = None

    async def _open_logs(self) -> None:
        """Begin to open logs, with turns for other clients: a topic may have thousands of partitions."""
        turn = Turn()
        while self._unopened:
            name, index = next(iter(self._unopened))
            del self._unopened[name, index]
            self._open(self._seen.topics[name], index)
            await turn.end_step()

    def _open(self, topic: TopicImage, index: int) -> None:
        try:
            open_log = self._hosted.opening(topic.name, topic.topic_id, index, self._log_config(topic))
            opening = self._run_in_thread(open_log)
        except OSError as error:
            self._failed(topic, index, error)
            return
        self._opening[topic.name, index] = opening
        if opening.done():
            self._opened(topic, index, opening)
        else:
            opening.add_done_callback(partial(self._opened_in_thread, topic, index))

    def _opened_in_thread(self, topic: TopicImage, index: int, opening: asyncio.Future[Log]) -> None:
        self._opened(topic, index, opening)
        if self._reports:
            task = asyncio.get_running_loop().create_task(self._send_reports())
            self._reporting.add(task)
            task.add_done_callback(self._reporting.discard)

    def _opened(self, topic: TopicImage, index: int, opening: asyncio.Future[Log]) -> None:
        key = (topic.name, index)
        del self._opening[key]
        try:
            log = opening.result()
        except RecoveryInterrupted:
            return
        except (OSError, KafkaError) as error:
            self._failed(topic, index, error)
            return
        partition = self._hosted.opened(topic.name, topic.topic_id, index, log)
        state = self._seen.partition(topic.name, index)
        if state is None or self._node_id not in state.replicas:
            self._remove(topic.name, {index}, [])
        elif topic.topic_id in self._seen.by_id:
            # The configs may have changed while the log was being opened.
            log.config = self._log_config(self._seen.topics[topic.name])
            self._assume_role(partition, state)
        else:
            # The name was given to another topic while the log of the old one was being opened.
            self._remove(topic.name, {index}, [])
            self._open(self._seen.topics[topic.name], index)

    def _failed(self, topic: TopicImage, index: int, error: Exception) -> None:
        self._hosted.failed(topic.name, index, error)
        self._report(topic, index, self._without_this_broker)

    def _assume_role(self, partition: Partition, state: PartitionState) -> None:
        topic, index = partition.topic, partition.index
        led = self._hosted.leads(partition)
        if state.leader != self._node_id:
            if led:
                self._resign(partition)
            partition.become_follower(state.leader_epoch, state.leader)
            if self.on_role is not None:
                self.on_role(partition)
            return
        newest_epoch = partition.log.latest_epoch or 0
        if newest_epoch > state.leader_epoch:
            # Kafka used the directory before. Clients may have seen its epochs, which must not go back.
            self._report(
                self._seen.topics[topic], index, lambda known: known._replace(leader_epoch=newest_epoch)
            )
            return
        is_new = not led or partition.leader_epoch != state.leader_epoch
        partition.become_leader(
            state.leader_epoch,
            state.replicas,
            state.isr,
            node_id=self._node_id,
            partition_epoch=state.partition_epoch,
            now=time.monotonic(),
        )
        self._hosted.lead(partition)
        if self.on_role is not None:
            self.on_role(partition)
        if is_new and topic in self.on_elected:
            self.on_elected[topic](index, state.leader_epoch)

    def _resign(self, partition: Partition) -> None:
        self._hosted.follow(partition)
        notify = self.on_resigned.get(partition.topic)
        if notify is not None:
            notify(partition.index)

    def _remove(self, topic: str, indexes: set[int], failures: list[KafkaError]) -> None:
        """Stop hosting partitions. The log of one that is still being opened is removed once it is open."""
        for index in indexes:
            self._unopened.pop((topic, index), None)
            partition = self._hosted.find(topic, index)
            if partition is not None and self._hosted.leads(partition):
                self._resign(partition)
        try:
            self._hosted.remove(topic, {index for index in indexes if (topic, index) not in self._opening})
        except KafkaError as error:
            failures.append(error)

    # Reports of what this broker found

    def _report(
        self, topic: TopicImage, index: int, change: Callable[[PartitionState], PartitionState]
    ) -> None:
        """Have the state of a partition changed, together with others that are found at the same time."""
        self._reports[topic.topic_id, index] = change

    async def _send_reports(self) -> None:
        while self._reports:
            reports, self._reports = self._reports, {}
            states: dict[str, dict[int, PartitionState]] = {}
            for (topic_id, index), change in reports.items():
                topic = self._seen.by_id.get(topic_id)
                if topic is not None:
                    states.setdefault(topic.name, {})[index] = change(topic.states[index])
            try:
                await self._store.alter_partitions(states)
            except KafkaError as error:
                logger.error("cannot report the state of %d partitions: %s", len(reports), error)

    def _without_this_broker(self, state: PartitionState) -> PartitionState:
        """The state of a partition whose log this broker cannot open."""
        return state._replace(
            leader=NO_LEADER if state.leader == self._node_id else state.leader,
            isr=tuple(broker for broker in state.isr if broker != self._node_id),
            offline=(*state.offline, self._node_id),
        )


def _internal_first(topics: Iterable[TopicImage]) -> list[TopicImage]:
    """Internal topics first, because groups and transactions wait for them."""
    return sorted(topics, key=lambda topic: topic.name not in INTERNAL_TOPICS)
