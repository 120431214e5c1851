"""A broker without its network: metadata, partitions, coordinators and upkeep, wired together.

`open_node` is the only place that composes them. The broker puts a network in front; tests use it as it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from millrace.api import offered_versions
from millrace.api.context import Services
from millrace.api.fetch_sessions import FetchSessions
from millrace.api.long_requests import LongRequests, RequestMemory
from millrace.clock import Clock
from millrace.cluster import identity
from millrace.cluster.cluster_store import ClusterStore
from millrace.cluster.file_store import FileStore
from millrace.cluster.image import BrokerImage, ClusterImage
from millrace.cluster.store import LiveGroupConfigs, LiveTopics, MetadataStore
from millrace.cluster.topic_rules import DEFAULT
from millrace.config import BrokerConfig
from millrace.coordinator.runtime import Runtime
from millrace.disk import Disk
from millrace.errors import Error, KafkaError
from millrace.groups.coordinator import Groups
from millrace.membership import Membership, join
from millrace.metrics import Metrics
from millrace.replication.adoption import find_topics
from millrace.replication.hosted_partitions import HostedPartitions
from millrace.replication.reconciler import Reconciler
from millrace.replication.upkeep import Upkeep
from millrace.replication.waiting import Woken
from millrace.security.authorizer import Authorizer
from millrace.security.quotas import Quotas
from millrace.storage.cleaner import Cleaner
from millrace.storage.inspector import Inspector
from millrace.storage.log_dir import LogDir
from millrace.timers import Timers
from millrace.txn.block_producer_ids import BlockProducerIds
from millrace.txn.coordinator import Transactions
from millrace.txn.marker_channel import LocalMarkerChannel
from millrace.txn.producer_ids import ProducerIds

logger = logging.getLogger(__name__)

FETCH_SESSION_EVICTION_MS = 120_000

RunInThread: TypeAlias = "Callable[[Callable[[], Any]], asyncio.Future[Any]]"
"""Runs work that waits for a disk off the loop."""


@dataclass(slots=True)
class Node:
    """The parts of an open broker. Owned by the broker loop; not thread-safe."""

    config: BrokerConfig
    metadata: MetadataStore
    partitions: HostedPartitions
    inspector: Inspector
    reconciler: Reconciler
    producer_ids: ProducerIds | BlockProducerIds
    fetch_sessions: FetchSessions
    woken: Woken
    groups: Groups
    transactions: Transactions
    upkeep: Upkeep
    cleaner: Cleaner
    metrics: Metrics
    clock: Clock
    timers: Timers
    loop: asyncio.AbstractEventLoop
    run_in_thread: RunInThread
    membership: Membership | None = None
    """The work with other brokers; None while the broker is alone."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set, repr=False)
    _loading: set[asyncio.Task[None]] = field(default_factory=set, repr=False)

    def services(self, memory: RequestMemory, authorizer: Authorizer | None = None) -> Services:
        """The parts that handlers use. Frames of long requests are counted in `memory`."""
        return Services(
            config=self.config,
            metadata=self.metadata,
            partitions=self.partitions,
            inspector=self.inspector,
            producer_ids=self.producer_ids,
            fetch_sessions=self.fetch_sessions,
            woken=self.woken,
            groups=self.groups,
            transactions=self.transactions,
            metrics=self.metrics,
            clock=self.clock,
            loop=self.loop,
            long_requests=LongRequests(memory),
            run_in_thread=self.run_in_thread,
            quotas=self._quotas(),
            api_versions=offered_versions(),
            authorizer=authorizer,
            verification=None if self.membership is None else self.membership.verification,
            cluster=None if self.membership is None else self.membership.store,
        )

    def _quotas(self) -> Quotas:
        """The quotas of clients, which follow the metadata."""
        quotas = Quotas(lambda: self.metadata.image.entity_configs, self.clock, self.config.quota_window_num)
        quotas.refresh()

        async def refresh(_: ClusterImage) -> None:
            quotas.refresh()

        self.metadata.subscribe(refresh)
        return quotas

    # Starting

    async def start(self, broker: BrokerImage) -> None:
        """Announce this broker, and begin to open its logs. A partition is served once its log is open."""
        await self.metadata.register(broker)
        self._load_when_elected(self.groups.runtime)
        self._load_when_elected(self.transactions.runtime)
        self.reconciler.on_deleted.append(self.groups.forget_topic)
        await self.reconciler.start()
        if not self.reconciler.opening:
            self._begin_producer_ids()

    def _load_when_elected(self, runtime: Runtime[Any]) -> None:
        def elected(index: int, leader_epoch: int) -> None:
            if runtime.elected(index, leader_epoch):
                self._loading.add(self._spawn(runtime.load()))

        self.reconciler.on_elected[runtime.topic] = elected
        self.reconciler.on_resigned[runtime.topic] = runtime.resigned

    async def opened(self) -> None:
        """Wait until every log is open, or known to be unusable."""
        await self.reconciler.settled()

    async def settled(self) -> None:
        """Wait until every log is open and every coordinator has loaded its state."""
        await self.opened()
        while self._loading:
            await asyncio.wait((self._loading.pop(),))

    def run(self) -> None:
        """Begin the work that repeats: flushing, retention, compaction, expiration."""
        self.upkeep.start()
        self.transactions.start()
        if self.membership is not None:
            self._spawn(self.membership.isr.run())
            self.membership.producer_ids.prepare()
        self._spawn(self.groups.expire_forever())
        self._spawn(self._after_opening())

    async def _after_opening(self) -> None:
        await self.opened()
        self._begin_producer_ids()
        self.cleaner.start()
        await self.upkeep.report_holes()

    def _begin_producer_ids(self) -> None:
        if not self.producer_ids.is_ready:
            self.producer_ids.begin_after(
                producer.producer_id
                for partition in self.partitions
                for producer in partition.log.active_producers()
            )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Stopping

    async def stop(self) -> None:
        """End all work in the background. The logs stay open, for `partitions.close` or `abandon`."""
        if self.membership is not None:
            await self.membership.stop()
        await self.reconciler.stop()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.inspector.stop()
        await self.cleaner.stop()
        await self.upkeep.stop()


def open_node(
    config: BrokerConfig,
    log_dirs: list[LogDir],
    *,
    clock: Clock,
    disk: Disk,
    timers: Timers,
    loop: asyncio.AbstractEventLoop,
    run_in_thread: RunInThread,
    store: MetadataStore | None = None,
) -> Node:
    """Compose a broker from its config and data directories; `start` starts it.

    With a `ClusterStore` it is a member of a cluster. Without a store the broker is alone and keeps its
    metadata in files. Raises OSError or ConfigError if a directory cannot be used.
    """
    cluster_id = identity.claim(
        log_dirs, config, store.image.cluster_id if isinstance(store, ClusterStore) else None
    )
    metadata = store or FileStore(
        config,
        log_dirs[0],
        cluster_id,
        run_in_thread=run_in_thread,
        adopt=lambda: find_topics(log_dirs, config.node_id),
    )
    partitions = HostedPartitions(
        log_dirs,
        clock=clock,
        disk=disk,
        run_later=run_in_thread,
        producer_id_expiration_ms=config.producer_id_expiration_ms,
    )
    membership = join(store, partitions, config) if isinstance(store, ClusterStore) else None
    producer_ids = ProducerIds(log_dirs[0]) if membership is None else membership.producer_ids

    def partition_count(topic: str) -> int | None:
        return metadata.image.partition_count(topic)

    async def create_internal_topic(name: str, count: int, configs: dict[str, str]) -> None:
        try:
            factor = config.replication_factor_of(name)
            await metadata.create_topic(
                name,
                count,
                min(factor, len(metadata.image.brokers)) if membership else DEFAULT,
                configs=configs,
            )
        except KafkaError as error:
            # Two requests may need it at the same time.
            if error.error is not Error.TOPIC_ALREADY_EXISTS:
                raise

    upkeep = Upkeep(partitions, config, clock=clock, timers=timers, run_in_thread=run_in_thread)
    node = Node(
        config=config,
        metadata=metadata,
        partitions=partitions,
        inspector=Inspector(loop, timers, config.queued_max_request_bytes),
        reconciler=Reconciler(metadata, partitions, config, run_in_thread=run_in_thread),
        producer_ids=producer_ids,
        fetch_sessions=FetchSessions(
            config.max_incremental_fetch_session_cache_slots, FETCH_SESSION_EVICTION_MS, clock
        ),
        woken=Woken(loop, timers),
        groups=Groups(
            topics=LiveTopics(metadata),
            partition_count=partition_count,
            partitions=partitions,
            create_topic=create_internal_topic,
            config=config,
            group_config=LiveGroupConfigs(metadata, config),
            clock=clock,
            timers=timers,
        ),
        transactions=Transactions(
            partition_count=partition_count,
            partitions=partitions,
            producer_ids=producer_ids,
            markers=LocalMarkerChannel(partitions) if membership is None else membership.markers,
            create_topic=create_internal_topic,
            config=config,
            clock=clock,
            timers=timers,
        ),
        upkeep=upkeep,
        cleaner=Cleaner(
            lambda: (partition.log for partition in partitions),
            config,
            clock=clock,
            timers=timers,
            disk=disk,
            run_in_thread=run_in_thread,
            remove_later=upkeep.remove_later,
        ),
        metrics=Metrics(timers),
        clock=clock,
        timers=timers,
        loop=loop,
        run_in_thread=run_in_thread,
        membership=membership,
    )
    if membership is not None:
        membership.attach(node.reconciler, node.transactions)
    for collect in (partitions.families, node.groups.families, node.transactions.families):
        node.metrics.add(collect)
    return node
