"""DescribeProducers v0: the producers of a partition, and the first offsets of their open transactions."""

from __future__ import annotations

from functools import partial

from millrace.api.context import Context
from millrace.cluster.topic_rules import check_topic_name
from millrace.errors import KafkaError
from millrace.steps import Steps, each
from millrace.storage.producer_state import Producer
from millrace.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(ctx: Context, request: DescribeProducersRequest) -> Steps[DescribeProducersResponse]:
    # A partition that is named twice is described once: it may have many producers.
    indexes: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        indexes.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        yield
    response = DescribeProducersResponse()
    for name, wanted in indexes.items():
        partitions = yield from each(wanted, partial(_describe, ctx, name))
        response.topics.append(TopicResponse(name=name, partitions=partitions))
        yield
    return response


def _describe(ctx: Context, topic: str, index: int) -> PartitionResponse:
    try:
        check_topic_name(topic)
        partition = ctx.services.partitions.leader(topic, index)
    except KafkaError as error:
        return PartitionResponse(partition_index=index, error_code=error.error, error_message=error.message)
    return PartitionResponse(
        partition_index=index,
        active_producers=[_state(producer) for producer in partition.log.active_producers()],
    )


def _state(producer: Producer) -> ProducerState:
    return ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.current_transaction_first_offset,
    )
