"""A broker's work with the other brokers of its cluster: copying logs, ISRs, producer ids, transactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millrace.cluster.cluster_store import ClusterStore
from millrace.config import BrokerConfig
from millrace.replication.fetchers import Fetchers, FetchLimits
from millrace.replication.hosted_partitions import HostedPartitions
from millrace.replication.isr_upkeep import IsrUpkeep
from millrace.replication.partition import Partition, Role
from millrace.replication.reconciler import Reconciler
from millrace.txn.block_producer_ids import BlockProducerIds
from millrace.txn.marker_channel import LocalMarkerChannel
from millrace.txn.remote import Calls, RemoteMarkers, Verification

if TYPE_CHECKING:
    from millrace.txn.coordinator import Transactions


@dataclass(slots=True)
class Membership:
    """Owned by the broker loop; not thread-safe."""

    store: ClusterStore
    fetchers: Fetchers
    isr: IsrUpkeep
    producer_ids: BlockProducerIds
    markers: RemoteMarkers
    calls: Calls
    node_id: int
    verification: Verification | None = None

    def attach(self, reconciler: Reconciler, transactions: Transactions) -> None:
        """Act on what the partitions become, and reach the coordinators of transactions."""
        reconciler.on_role = self._role_changed
        self.store.subscribe(self.fetchers.reconcile)
        self.verification = Verification(
            transactions,
            node_id=self.node_id,
            image=lambda: self.store.image,
            send=self.store.peers.send,
            calls=self.calls,
        )

    def _role_changed(self, partition: Partition) -> None:
        if partition.role is Role.LEADER:
            partition.on_caught_up = self.isr.noticed
        self.fetchers.refresh_soon()

    async def stop(self) -> None:
        self.fetchers.stop()
        self.producer_ids.stop()
        self.calls.stop()


def join(store: ClusterStore, hosted: HostedPartitions, config: BrokerConfig) -> Membership:
    """Compose the work of a member; `attach` starts it."""

    def may_join(broker: int, epoch: int) -> bool:
        member = store.image.brokers.get(broker)
        return member is not None and member.epoch == epoch and not member.is_stopping

    calls = Calls()
    return Membership(
        store=store,
        fetchers=Fetchers(
            hosted,
            node_id=config.node_id,
            broker_epoch=lambda: store.broker_epoch,
            listener=store.peers.listener,
            open_connection=store.peers.open,
            limits=FetchLimits(
                config.replica_fetch_wait_max_ms,
                config.replica_fetch_min_bytes,
                config.replica_fetch_max_bytes,
                config.replica_fetch_response_max_bytes,
            ),
        ),
        isr=IsrUpkeep(
            lambda: list(hosted),
            node_id=config.node_id,
            max_lag_seconds=config.replica_lag_time_max_ms / 1000,
            broker_epoch=lambda: store.broker_epoch,
            may_join=may_join,
            alter=store.alter_isrs,
        ),
        producer_ids=BlockProducerIds(store.take_producer_ids),
        markers=RemoteMarkers(
            LocalMarkerChannel(hosted),
            node_id=config.node_id,
            image=lambda: store.image,
            send=store.peers.send,
            calls=calls,
        ),
        calls=calls,
        node_id=config.node_id,
    )
