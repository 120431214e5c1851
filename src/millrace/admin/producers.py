"""Producers of partitions: their sequence numbers and open transactions."""

from collections.abc import Iterable
from typing import NamedTuple

from millrace.admin.partitions import by_topic
from millrace.client import Client, Connection, Outcomes, TopicPartition
from millrace.wire.messages import describe_producers as api

# Brokers hold many partitions; each request is about some of them.
PARTITIONS_PER_REQUEST = 500
_NO_TRANSACTION = -1


class ProducerState(NamedTuple):
    """A producer of a partition; `transaction_start` is None if it has no open transaction there."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start: int | None


async def describe_producers(
    client: Client, partitions: Iterable[TopicPartition], *, broker_id: int | None = None
) -> Outcomes[TopicPartition, list[ProducerState]]:
    """The producers of partitions, as the leaders know them, or another replica."""
    if broker_id is None:
        return await client.call_leaders(partitions, _describe)
    return await client.call_nodes(dict.fromkeys(partitions, broker_id), _describe)


async def _describe(
    connection: Connection, partitions: list[TopicPartition]
) -> Outcomes[TopicPartition, list[ProducerState]]:
    outcomes: Outcomes[TopicPartition, list[ProducerState]] = Outcomes()
    for start in range(0, len(partitions), PARTITIONS_PER_REQUEST):
        grouped = by_topic(partitions[start : start + PARTITIONS_PER_REQUEST])
        request = api.DescribeProducersRequest(
            topics=[
                api.TopicRequest(name=topic, partition_indexes=indexes) for topic, indexes in grouped.items()
            ]
        )
        for topic in (await connection.send(request, api.DescribeProducersResponse)).topics:
            for partition in topic.partitions:
                outcomes.add(
                    TopicPartition(topic.name, partition.partition_index),
                    list(map(_state, partition.active_producers)),
                    partition.error_code,
                    partition.error_message,
                )
    return outcomes


def _state(producer: api.ProducerState) -> ProducerState:
    start = producer.current_txn_start_offset
    return ProducerState(
        producer.producer_id,
        producer.producer_epoch,
        producer.last_sequence,
        producer.last_timestamp,
        producer.coordinator_epoch,
        None if start == _NO_TRANSACTION else start,
    )
