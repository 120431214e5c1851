"""OffsetDelete v0."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(ctx: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    if not request.group_id:
        raise KafkaError(Error.INVALID_GROUP_ID)
    asked = [
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
        if _exists(ctx, topic.name, partition.partition_index)
    ]
    outcome = ctx.groups.delete_offsets(request.group_id, asked)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=outcome.get(
                            (topic.name, partition.partition_index), Error.UNKNOWN_TOPIC_OR_PARTITION
                        ),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _exists(ctx: Context, topic: str, partition: int) -> bool:
    known = ctx.image.topics.get(topic)
    return known is not None and 0 <= partition < known.partitions
