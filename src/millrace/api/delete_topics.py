"""DeleteTopics v1-6. v4: flexible. v5: error messages. v6: topics by id."""

from __future__ import annotations

import asyncio
from collections import Counter

from millrace.api.context import Context
from millrace.cluster.metadata import Topic
from millrace.errors import Error, KafkaError
from millrace.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from millrace.wire.schema import ZERO_UUID


async def handle(ctx: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    asked = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    times = Counter((state.name, state.topic_id) for state in asked)
    results: dict[tuple[str | None, bytes], DeletableTopicResult] = {}
    for state in asked:
        key = (state.name, state.topic_id)
        if times[key] > 1:
            results[key] = _failed(state, KafkaError(Error.INVALID_REQUEST, "Duplicate topic name."))
        else:
            results[key] = _delete(ctx, state)
            # Each topic costs an fsync: others get their turn in between.
            await asyncio.sleep(0)
    return DeleteTopicsResponse(responses=list(results.values()))


def _delete(ctx: Context, state: DeleteTopicState) -> DeletableTopicResult:
    try:
        topic = _find(ctx, state)
        ctx.cluster.delete_topic(topic)
    except KafkaError as error:
        return _failed(state, error)
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)


def _find(ctx: Context, state: DeleteTopicState) -> Topic:
    if state.name is None:
        return ctx.cluster.topic_by_id(state.topic_id)
    if state.topic_id != ZERO_UUID:
        raise KafkaError(Error.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    return ctx.cluster.topic(state.name)


def _failed(state: DeleteTopicState, error: KafkaError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=state.name, topic_id=state.topic_id, error_code=error.error, error_message=error.message
    )
