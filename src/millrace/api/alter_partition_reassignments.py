"""AlterPartitionReassignments v0-1. v1: the replication factor may be kept from changing.

A broker that is alone accepts only the replicas that a partition has already. In a cluster the controller
moves them.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any

from millrace.api.context import Context
from millrace.cluster.cluster_store import ClusterStore
from millrace.cluster.image import ClusterImage
from millrace.cluster.topic_rules import check_replicas
from millrace.errors import Error, KafkaError
from millrace.steps import Steps, each
from millrace.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


def handle(
    ctx: Context, request: AlterPartitionReassignmentsRequest
) -> Steps[AlterPartitionReassignmentsResponse] | Coroutine[Any, Any, AlterPartitionReassignmentsResponse]:
    if ctx.services.cluster is not None:
        return _reassign_by_controller(ctx.services.cluster, request)
    return _reassign_none(ctx, request)


async def _reassign_by_controller(
    cluster: ClusterStore, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    named = [(topic.name, partition) for topic in request.topics for partition in topic.partitions]
    outcomes = await cluster.call(
        "reassign",
        partitions=[(name, asked.partition_index, asked.replicas) for name, asked in named],
        keep_factor=not request.allow_replication_factor_change,
    )
    responses: dict[str, ReassignableTopicResponse] = {}
    for (name, asked), (code, message) in zip(named, outcomes, strict=True):
        topic = responses.setdefault(name, ReassignableTopicResponse(name, []))
        topic.partitions.append(ReassignablePartitionResponse(asked.partition_index, code, message))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=list(responses.values()),
    )


def _reassign_none(
    ctx: Context, request: AlterPartitionReassignmentsRequest
) -> Steps[AlterPartitionReassignmentsResponse]:
    image = ctx.image
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    for topic in request.topics:
        partitions = yield from each(topic.partitions, partial(_reassign, image, topic.name))
        response.responses.append(ReassignableTopicResponse(topic.name, partitions))
        yield
    return response


def _reassign(image: ClusterImage, topic: str, asked: ReassignablePartition) -> ReassignablePartitionResponse:
    try:
        _check(image, topic, asked)
    except KafkaError as error:
        return ReassignablePartitionResponse(asked.partition_index, error.error, error.message)
    return ReassignablePartitionResponse(asked.partition_index, error_message=None)


def _check(image: ClusterImage, topic: str, asked: ReassignablePartition) -> None:
    if topic not in image.topics:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic}.")
    state = image.partition(topic, asked.partition_index)
    if state is None:
        raise KafkaError(
            Error.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic}:{asked.partition_index}."
        )
    if asked.replicas is None:
        raise KafkaError(Error.NO_REASSIGNMENT_IN_PROGRESS)
    check_replicas(asked.replicas, tuple(image.brokers))
    if tuple(asked.replicas) != state.replicas:
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT, "Replicas cannot be moved from one broker to another."
        )
