"""Transactions: lists, describes and ends them, and finds those that no coordinator will end."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from millrace.admin.producers import ProducerState, describe_producers
from millrace.client import Client, Connection, CoordinatorType, Outcomes, TopicPartition
from millrace.errors import Error, KafkaError, check
from millrace.wire.messages import describe_transactions as describe_api
from millrace.wire.messages import list_transactions as list_api
from millrace.wire.messages import write_txn_markers as marker_api
from millrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_DURATION_VERSION, _PATTERN_VERSION = 1, 2
_NOT_STARTED = -1
# The producer id that fencing returns stays unused, so its transactions need no time.
_FENCING_TIMEOUT_MS = 1


class TransactionListing(NamedTuple):
    """A transactional id and the broker that coordinates it."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The state of a transactional id; `started_ms` is None if no transaction is open."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]


class OpenTransaction(NamedTuple):
    """A transaction that a producer has begun in a partition."""

    partition: TopicPartition
    producer: ProducerState
    silent_ms: int


async def list_transactions(
    client: Client,
    *,
    producer_ids: Iterable[int] = (),
    longer_than_ms: int | None = None,
    id_pattern: str | None = None,
) -> list[TransactionListing]:
    """The transactional ids of the cluster, or those that pass the filters.

    Raises ApiNotOffered if a broker is too old for a filter.
    """
    request = list_api.ListTransactionsRequest(
        producer_id_filters=list(producer_ids),
        duration_filter=-1 if longer_than_ms is None else longer_than_ms,
        transactional_id_pattern=id_pattern,
    )
    lowest = _PATTERN_VERSION if id_pattern else _DURATION_VERSION if longer_than_ms is not None else 0

    async def call(connection: Connection, broker_ids: list[int]) -> Outcomes[int, list[TransactionListing]]:
        response = await connection.send(request, list_api.ListTransactionsResponse, lowest=lowest)
        check(response.error_code)
        (broker_id,) = broker_ids
        listed = [
            TransactionListing(found.transactional_id, broker_id, found.producer_id, found.transaction_state)
            for found in response.transaction_states
        ]
        return Outcomes({broker_id: listed})

    await client.metadata([])
    by_broker = (await client.call_brokers(sorted(client.cluster.nodes), call)).all()
    return [listed for listings in by_broker.values() for listed in listings]


async def describe_transactions(
    client: Client, transactional_ids: Iterable[str]
) -> Outcomes[str, TransactionDescription]:
    """These transactional ids; one that does not exist fails with TRANSACTIONAL_ID_NOT_FOUND."""

    async def call(connection: Connection, ids: list[str]) -> Outcomes[str, TransactionDescription]:
        outcomes: Outcomes[str, TransactionDescription] = Outcomes()
        request = describe_api.DescribeTransactionsRequest(transactional_ids=ids)
        response = await connection.send(request, describe_api.DescribeTransactionsResponse)
        for state in response.transaction_states:
            described = _described(state, connection.node_id)
            outcomes.add(state.transactional_id, described, state.error_code)
        return outcomes

    return await client.call_coordinators(CoordinatorType.TRANSACTION, transactional_ids, call)


def _described(state: describe_api.TransactionState, coordinator_id: int) -> TransactionDescription:
    started_ms = state.transaction_start_time_ms
    return TransactionDescription(
        transactional_id=state.transactional_id,
        coordinator_id=coordinator_id,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        state=state.transaction_state,
        timeout_ms=state.transaction_timeout_ms,
        started_ms=None if started_ms == _NOT_STARTED else started_ms,
        partitions=tuple(
            TopicPartition(topic.topic, index) for topic in state.topics for index in topic.partitions
        ),
    )


async def find_open_transaction(
    client: Client, partition: TopicPartition, start_offset: int
) -> ProducerState:
    """The producer whose transaction begins at an offset. Raises KafkaError if there is none."""
    for producer in (await describe_producers(client, [partition]))[partition]:
        if producer.transaction_start == start_offset:
            return producer
    raise KafkaError(
        Error.INVALID_TXN_STATE,
        f"Could not find any open transactions starting at offset {start_offset} on partition {partition}",
    )


async def abort_in_partition(
    client: Client, partition: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> None:
    """Write an abort marker, in the name of a coordinator, to one partition."""
    marker = marker_api.WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        # Before a producer's first marker, the epoch is unknown, and any will do.
        coordinator_epoch=max(coordinator_epoch, 0),
        transaction_result=False,
        topics=[
            marker_api.WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])
        ],
    )

    async def call(connection: Connection, _: list[TopicPartition]) -> Outcomes[TopicPartition, None]:
        outcomes: Outcomes[TopicPartition, None] = Outcomes()
        request = marker_api.WriteTxnMarkersRequest(markers=[marker])
        for result in (await connection.send(request, marker_api.WriteTxnMarkersResponse)).markers:
            for topic in result.topics:
                for written in topic.partitions:
                    key = TopicPartition(topic.name, written.partition_index)
                    outcomes.add(key, None, written.error_code)
        return outcomes

    (await client.call_leaders([partition], call)).all()


async def fence_producer(client: Client, transactional_id: str) -> None:
    """Abort the transaction of a transactional id, and fence the producer that uses the id."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=_FENCING_TIMEOUT_MS
    )

    async def call(connection: Connection, ids: list[str]) -> Outcomes[str, None]:
        check((await connection.send(request, InitProducerIdResponse)).error_code)
        return Outcomes(dict.fromkeys(ids))

    (await client.call_coordinators(CoordinatorType.TRANSACTION, [transactional_id], call)).all()


async def find_hanging_transactions(
    client: Client,
    partitions: Iterable[TopicPartition],
    max_timeout_ms: int,
    *,
    broker_id: int | None = None,
) -> list[OpenTransaction]:
    """Transactions that no coordinator will end, as the leaders of partitions know them, or another replica.

    Candidates are those that have been silent for longer than any transaction may take.
    """
    producers = (await describe_producers(client, partitions, broker_id=broker_id)).all()
    candidates = _silent_transactions(producers, max_timeout_ms)
    if not candidates:
        return []
    producer_ids = sorted({candidate.producer.producer_id for candidate in candidates})
    listed = await list_transactions(client, producer_ids=producer_ids)
    ids = {found.producer_id: found.transactional_id for found in listed}
    described = await describe_transactions(client, ids.values())
    for error in described.failed.values():
        if error.error is not Error.TRANSACTIONAL_ID_NOT_FOUND:
            raise error

    def is_coordinated(candidate: OpenTransaction) -> bool:
        found = described.succeeded.get(ids.get(candidate.producer.producer_id, ""))
        return found is not None and candidate.partition in found.partitions

    return [candidate for candidate in candidates if not is_coordinated(candidate)]


def _silent_transactions(
    producers: dict[TopicPartition, list[ProducerState]], max_timeout_ms: int
) -> list[OpenTransaction]:
    now_ms = round(time.time() * 1000)
    return [
        OpenTransaction(partition, producer, now_ms - producer.last_timestamp)
        for partition, found in producers.items()
        for producer in found
        if producer.transaction_start is not None and now_ms - producer.last_timestamp > max_timeout_ms
    ]
