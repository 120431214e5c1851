"""AlterPartition as a message: a leader's requests and the controller's outcomes."""

from __future__ import annotations

from collections.abc import Mapping

from millrace.cluster.controller import IsrRequest
from millrace.cluster.image import PartitionState
from millrace.errors import KafkaError
from millrace.wire.messages.alter_partition import (
    AlteredPartition,
    AlteredPartitionResult,
    AlteredTopic,
    AlteredTopicResult,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
)

Key = tuple[bytes, int]
"""A topic's id and the index of a partition."""


def alter_partition_request(
    broker: int, broker_epoch: int, requests: Mapping[Key, IsrRequest]
) -> AlterPartitionRequest:
    topics: dict[bytes, AlteredTopic] = {}
    for (topic_id, index), wanted in requests.items():
        topic = topics.setdefault(topic_id, AlteredTopic(topic_id=topic_id))
        topic.partitions.append(
            AlteredPartition(
                partition_index=index,
                leader_epoch=wanted.leader_epoch,
                new_isr_with_epochs=[BrokerState(*member) for member in wanted.in_sync.items()],
                partition_epoch=wanted.partition_epoch,
            )
        )
    return AlterPartitionRequest(broker_id=broker, broker_epoch=broker_epoch, topics=list(topics.values()))


def isr_requests(request: AlterPartitionRequest) -> dict[Key, IsrRequest]:
    return {
        (topic.topic_id, partition.partition_index): IsrRequest(
            partition.leader_epoch,
            partition.partition_epoch,
            {member.broker_id: member.broker_epoch for member in partition.new_isr_with_epochs},
        )
        for topic in request.topics
        for partition in topic.partitions
    }


def alter_partition_response(outcomes: Mapping[Key, PartitionState | KafkaError]) -> AlterPartitionResponse:
    topics: dict[bytes, AlteredTopicResult] = {}
    for (topic_id, index), outcome in outcomes.items():
        topic = topics.setdefault(topic_id, AlteredTopicResult(topic_id=topic_id))
        result = AlteredPartitionResult(partition_index=index)
        if isinstance(outcome, KafkaError):
            result.error_code = outcome.error
        else:
            result.leader_id, result.leader_epoch = outcome.leader, outcome.leader_epoch
            result.isr, result.partition_epoch = list(outcome.isr), outcome.partition_epoch
        topic.partitions.append(result)
    return AlterPartitionResponse(topics=list(topics.values()))
