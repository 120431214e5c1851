"""OffsetDelete v0."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.deferred import Eventual
from millrace.errors import Error, KafkaError
from millrace.steps import Steps
from millrace.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(ctx: Context, request: OffsetDeleteRequest) -> Steps[Eventual[OffsetDeleteResponse]]:
    if not request.group_id:
        raise KafkaError(Error.INVALID_GROUP_ID)
    existing: dict[tuple[str, int], None] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            if _exists(ctx, topic.name, partition.partition_index):
                existing[topic.name, partition.partition_index] = None
            yield
        yield
    leadership = ctx.services.groups.runtime.leadership(request.group_id)
    outcome = ctx.services.groups.delete_offsets(request.group_id, list(existing))
    response = OffsetDeleteResponse()
    for topic in request.topics:
        result = OffsetDeleteResponseTopic(name=topic.name)
        response.topics.append(result)
        for partition in topic.partitions:
            index = partition.partition_index
            error = outcome.get((topic.name, index), Error.UNKNOWN_TOPIC_OR_PARTITION)
            result.partitions.append(OffsetDeleteResponsePartition(index, error))
            yield
        yield
    return ctx.services.groups.settled(request.group_id, response, since=leadership)


def _exists(ctx: Context, topic: str, partition: int) -> bool:
    known = ctx.image.topics.get(topic)
    return known is not None and 0 <= partition < known.partitions
