"""DescribeProducers v0: who writes to a partition, and where its open transaction started."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.cluster.topic_rules import check_topic_name
from millrace.errors import KafkaError
from millrace.storage.producer_state import Producer
from millrace.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(ctx: Context, request: DescribeProducersRequest) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_describe(ctx, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _describe(ctx: Context, topic: str, index: int) -> PartitionResponse:
    try:
        check_topic_name(topic)
        partition = ctx.partitions.leader(topic, index)
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
