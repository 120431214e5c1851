"""Transactions that span brokers: leaders ask the coordinator, and the coordinator sends them markers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from millrace.client.errors import BrokerUnreachable, ConnectionLost, ResponseTimeout
from millrace.cluster.image import NO_LEADER, ClusterImage
from millrace.deferred import Deferred
from millrace.errors import Error, KafkaError, check
from millrace.txn.coordinator import Transactions
from millrace.txn.marker_channel import LocalMarkerChannel, Marker
from millrace.txn.transaction_state import TopicPartition
from millrace.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from millrace.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from millrace.wire.schema import Request, Response

R = TypeVar("R", bound=Response)

Lost = (BrokerUnreachable, ConnectionLost, ResponseTimeout)


class Send(Protocol):
    """Sends a request to a broker of the cluster."""

    def __call__(self, broker: int, request: Request, expect: type[R]) -> Awaitable[R]: ...


class Calls:
    """Calls under way, each with the promise of its outcome. Owned by the broker loop; not thread-safe."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, call: Coroutine[Any, Any, None]) -> Deferred[None]:
        promise: Deferred[None] = Deferred()

        async def run() -> None:
            try:
                await call
            except Exception as error:
                promise.fail(error)
            else:
                promise.resolve(None)

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return promise

    def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()


class RemoteMarkers:
    """A `MarkerChannel` to the leaders of all partitions. Owned by the broker loop; not thread-safe."""

    def __init__(
        self,
        local: LocalMarkerChannel,
        *,
        node_id: int,
        image: Callable[[], ClusterImage],
        send: Send,
        calls: Calls,
    ) -> None:
        self._local = local
        self._node_id = node_id
        self._image = image
        self._send = send
        self._calls = calls

    def write(self, partition: TopicPartition, marker: Marker) -> Deferred[None]:
        state = self._image().partition(*partition)
        if state is None:
            return Deferred.failing(KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION))
        if state.leader == self._node_id:
            return self._local.write(partition, marker)
        if state.leader == NO_LEADER:
            return Deferred.failing(KafkaError(Error.NOT_LEADER_OR_FOLLOWER))
        return self._calls.begin(self._write(state.leader, partition, marker))

    async def _write(self, leader: int, partition: TopicPartition, marker: Marker) -> None:
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=marker.producer_id,
                    producer_epoch=marker.producer_epoch,
                    transaction_result=marker.committed,
                    topics=[WritableTxnMarkerTopic(partition[0], [partition[1]])],
                    coordinator_epoch=marker.coordinator_epoch,
                    transaction_version=marker.transaction_version,
                )
            ]
        )
        try:
            response = await self._send(leader, request, WriteTxnMarkersResponse)
        except Lost as lost:
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER, lost.message) from lost
        for written in response.markers:
            for topic in written.topics:
                for outcome in topic.partitions:
                    check(outcome.error_code)


class Verification:
    """Asks the coordinator of a transaction, here or elsewhere. Owned by the broker loop; not thread-safe."""

    def __init__(
        self,
        transactions: Transactions,
        *,
        node_id: int,
        image: Callable[[], ClusterImage],
        send: Send,
        calls: Calls,
    ) -> None:
        self._transactions = transactions
        self._node_id = node_id
        self._image = image
        self._send = send
        self._calls = calls

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        topic: str,
        partition: int,
        *,
        joins: bool,
        knows_abortable: bool = True,
    ) -> Deferred[None]:
        """As `Transactions.verify` does."""
        runtime = self._transactions.runtime
        try:
            state = self._image().partition(runtime.topic, runtime.partition_of(transactional_id))
        except KafkaError as error:
            return Deferred.failing(error)
        if state is None or state.leader in (NO_LEADER, self._node_id):
            return self._transactions.verify(
                transactional_id,
                producer_id,
                producer_epoch,
                topic,
                partition,
                joins=joins,
                knows_abortable=knows_abortable,
            )
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            verify_only=not joins,
            topics=[AddPartitionsToTxnTopic(topic, [partition])],
        )
        return self._calls.begin(self._ask(state.leader, transaction, knows_abortable))

    async def _ask(
        self, coordinator: int, transaction: AddPartitionsToTxnTransaction, knows_abortable: bool
    ) -> None:
        request = AddPartitionsToTxnRequest(transactions=[transaction])
        try:
            response = await self._send(coordinator, request, AddPartitionsToTxnResponse)
        except Lost as lost:
            raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE, lost.message) from lost
        check(response.error_code)
        for asked in response.results_by_transaction:
            for topic in asked.topic_results:
                for result in topic.results_by_partition:
                    _check_agreed(result.partition_error_code, knows_abortable)


def _check_agreed(code: int, knows_abortable: bool) -> None:
    if code == Error.PRODUCER_FENCED:
        raise KafkaError(Error.INVALID_PRODUCER_EPOCH)
    if code == Error.TRANSACTION_ABORTABLE and not knows_abortable:
        raise KafkaError(Error.INVALID_TXN_STATE)
    check(code)
