"""Replicates the partitions that other brokers lead: one connection and one fetch session for each leader."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from millrace.client.connection import Connection
from millrace.cluster.image import ClusterImage, Endpoint
from millrace.errors import Error, KafkaError, error_of
from millrace.replication import following
from millrace.replication.following import EpochEnd, FetchPosition
from millrace.replication.hosted_partitions import HostedPartitions
from millrace.replication.partition import Partition, Role
from millrace.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)

logger = logging.getLogger(__name__)

VERSION = 17
RETRY_SECONDS = 0.1
LONGEST_RETRY_SECONDS = 1.0
# A partition whose fetch failed is left out for so long.
PARTITION_RETRY_SECONDS = 0.1
# Kafka's error of a session that the leader does not have any more.
SESSION_ERRORS = (Error.FETCH_SESSION_ID_NOT_FOUND, Error.INVALID_FETCH_SESSION_EPOCH)

# Leader and follower learn of an election one after the other.
PASSING = (
    Error.NOT_LEADER_OR_FOLLOWER,
    Error.FENCED_LEADER_EPOCH,
    Error.UNKNOWN_LEADER_EPOCH,
    Error.UNKNOWN_TOPIC_ID,
    Error.STALE_BROKER_EPOCH,
)

Key = tuple[bytes, int]
"""A topic's id and the index of a partition."""


class FetchLimits(NamedTuple):
    """The limits of one fetch, from Kafka's replica.fetch options."""

    wait_ms: int = 500
    min_bytes: int = 1
    partition_bytes: int = 1 << 20
    response_bytes: int = 10 << 20


class Fetchers:
    """Owned by the broker loop; not thread-safe."""

    def __init__(
        self,
        hosted: HostedPartitions,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        listener: str,
        open_connection: Callable[[Endpoint], Awaitable[Connection]],
        limits: FetchLimits,
    ) -> None:
        """`listener` is the name of the listener that brokers use among themselves."""
        self.hosted = hosted
        self.node_id = node_id
        self.broker_epoch = broker_epoch
        self.open_connection = open_connection
        self.limits = limits
        self._listener = listener
        self._fetchers: dict[int, _Fetcher] = {}
        self._refreshing = False
        self._has_stopped = False

    def refresh_soon(self) -> None:
        """A partition has another role or leader. Many change at once."""
        if not self._refreshing:
            self._refreshing = True
            asyncio.get_running_loop().call_soon(self._refresh)

    async def reconcile(self, image: ClusterImage) -> None:
        """Brokers may have moved to other addresses."""
        self.refresh_soon()

    def _refresh(self) -> None:
        """Follow the leaders that the partitions have now."""
        self._refreshing = False
        if self._has_stopped:
            return
        image = self.hosted.image
        by_leader: dict[int, dict[Key, Partition]] = {}
        for partition in self.hosted:
            if partition.role is Role.FOLLOWER and partition.leader in image.brokers:
                followed = by_leader.setdefault(partition.leader, {})
                followed[partition.topic_id, partition.index] = partition
        for leader in self._fetchers.keys() - by_leader.keys():
            self._fetchers.pop(leader).stop()
        for leader, followed in by_leader.items():
            fetcher = self._fetchers.get(leader)
            endpoint = image.brokers[leader].endpoints.get(self._listener)
            if endpoint is None:
                continue
            if fetcher is not None and fetcher.endpoint != endpoint:
                fetcher.stop()
                fetcher = None
            if fetcher is None:
                fetcher = self._fetchers[leader] = _Fetcher(self, leader, endpoint)
            fetcher.follow(followed)

    def stop(self) -> None:
        """Follow no leader any more, although images may still arrive."""
        self._has_stopped = True
        for fetcher in self._fetchers.values():
            fetcher.stop()
        self._fetchers.clear()


class _Fetcher:
    """Copies the partitions of one leader."""

    def __init__(self, fetchers: Fetchers, leader: int, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._of = fetchers
        self._leader = leader
        self._followed: dict[Key, Partition] = {}
        self._paused: dict[Key, float] = {}
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        # The session, and what the leader knows of each partition in it.
        self._session_id = self._session_epoch = 0
        self._named: dict[Key, FetchPosition] = {}
        self._task = self._loop.create_task(self._run())

    def follow(self, partitions: dict[Key, Partition]) -> None:
        self._followed = partitions
        self._paused.clear()
        self._changed.set()

    def stop(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        pause = RETRY_SECONDS
        while True:
            try:
                connection = await self._of.open_connection(self.endpoint)
            except KafkaError as error:
                logger.info("cannot reach leader %d: %s", self._leader, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_RETRY_SECONDS)
                continue
            pause = RETRY_SECONDS
            try:
                self._forget_session()
                while True:
                    await self._fetch(connection)
            except KafkaError as error:
                logger.info("fetching from leader %d failed: %s", self._leader, error)
                await asyncio.sleep(pause)
            except Exception:
                logger.exception("a bug: fetching from leader %d failed", self._leader)
                await asyncio.sleep(LONGEST_RETRY_SECONDS)
            finally:
                connection.close()

    def _forget_session(self) -> None:
        self._session_id = self._session_epoch = 0
        self._named.clear()

    async def _fetch(self, connection: Connection) -> None:
        wanted = self._positions()
        if not wanted:
            self._changed.clear()
            timeout = PARTITION_RETRY_SECONDS if self._paused else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._changed.wait()
            return
        asked = dict(wanted)
        response = await connection.send_in(VERSION, self._request(wanted), FetchResponse)
        if response.error_code:
            error = error_of(response.error_code)
            if error in SESSION_ERRORS:
                self._forget_session()
                return
            raise KafkaError(error)
        self._session_id = response.session_id
        self._session_epoch = self._session_epoch + 1 if response.session_id else 0
        self._named = asked if response.session_id else {}
        for topic in response.responses:
            for data in topic.partitions:
                self._take((topic.topic_id, data.partition_index), asked, data)

    def _positions(self) -> dict[Key, FetchPosition]:
        now = self._loop.time()
        positions = {}
        for key, partition in self._followed.items():
            if partition.role is not Role.FOLLOWER or partition.leader != self._leader:
                continue
            if self._paused.get(key, 0.0) > now:
                continue
            self._paused.pop(key, None)
            positions[key] = following.position_of(partition)
        return positions

    def _request(self, wanted: dict[Key, FetchPosition]) -> FetchRequest:
        """A request that names what differs from the session."""
        limits = self._of.limits
        topics: dict[bytes, FetchTopic] = {}
        for key, position in wanted.items():
            if self._named.get(key) != position:
                topic = topics.setdefault(key[0], FetchTopic(topic_id=key[0]))
                topic.partitions.append(self._partition(key, position))
        forgotten: dict[bytes, ForgottenTopic] = {}
        for topic_id, index in self._named.keys() - wanted.keys():
            gone = forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id))
            gone.partitions.append(index)
        return FetchRequest(
            replica_state=ReplicaState(self._of.node_id, self._of.broker_epoch()),
            max_wait_ms=limits.wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.response_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )

    def _partition(self, key: Key, position: FetchPosition) -> FetchPartition:
        return FetchPartition(
            partition=key[1],
            current_leader_epoch=position.leader_epoch,
            fetch_offset=position.offset,
            last_fetched_epoch=position.last_epoch,
            log_start_offset=self._followed[key].log.log_start_offset,
            partition_max_bytes=self._of.limits.partition_bytes,
        )

    def _take(self, key: Key, asked: dict[Key, FetchPosition], data: PartitionData) -> None:
        partition, position = self._followed.get(key), asked.get(key)
        if partition is None or position is None or partition.role is not Role.FOLLOWER:
            return
        try:
            if data.error_code:
                self._recover(partition, data)
                return
            diverging = data.diverging_epoch
            following.take(
                partition,
                position,
                records=memoryview(data.records or b""),
                high_watermark=data.high_watermark,
                diverging=None
                if diverging is None or diverging.end_offset < 0
                else EpochEnd(diverging.epoch, diverging.end_offset),
                truncate=self._of.hosted.truncate,
            )
            if data.log_start_offset > partition.log.log_start_offset:
                partition.log.delete_records_before(min(data.log_start_offset, partition.high_watermark))
        except (KafkaError, OSError) as error:
            passes = isinstance(error, KafkaError) and error.error in PASSING
            logger.log(
                logging.INFO if passes else logging.WARNING,
                "%r cannot follow broker %d: %s",
                partition,
                self._leader,
                error,
            )
            self._paused[key] = self._loop.time() + PARTITION_RETRY_SECONDS

    def _recover(self, partition: Partition, data: PartitionData) -> None:
        error = error_of(data.error_code)
        if error is Error.OFFSET_OUT_OF_RANGE and data.log_start_offset >= 0:
            end = partition.log.log_end_offset
            if end < data.log_start_offset:
                # Retention at the leader has overtaken this replica: it begins again where the leader does.
                self._of.hosted.restart(partition, data.log_start_offset)
                return
        raise KafkaError(error)
