"""DeleteTopics v1-6. v4: flexible. v5: error messages. v6: topics by id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from functools import partial

from millrace.api.context import Context
from millrace.cluster.image import TopicImage
from millrace.errors import Error, KafkaError
from millrace.steps import Turn, each, finish
from millrace.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from millrace.wire.schema import ZERO_UUID


async def handle(ctx: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    states = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    keys = await finish(each(states, partial(_identity, ctx)))
    times = Counter(keys)
    results: dict[Hashable, DeletableTopicResult] = {}
    turn = Turn()
    for key, state in zip(keys, states, strict=True):
        if times[key] > 1:
            results[key] = _failed(state, KafkaError(Error.INVALID_REQUEST, "Duplicate topic name or id."))
        else:
            results[key] = await _delete(ctx, state)
        await turn.end_step()
    return DeleteTopicsResponse(responses=list(results.values()))


def _identity(ctx: Context, state: DeleteTopicState) -> Hashable:
    """The same for a topic's name and its id."""
    if state.name is None:
        return state.topic_id
    known = ctx.image.topics.get(state.name)
    return state.name if known is None else known.topic_id


async def _delete(ctx: Context, state: DeleteTopicState) -> DeletableTopicResult:
    try:
        topic = _find(ctx, state)
        await ctx.services.metadata.delete_topic(topic)
    except KafkaError as error:
        return _failed(state, error)
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)


def _find(ctx: Context, state: DeleteTopicState) -> TopicImage:
    if (state.name is None) == (state.topic_id == ZERO_UUID):
        raise KafkaError(Error.INVALID_REQUEST, "A topic is deleted by its name or by its id.")
    if state.name is None:
        return ctx.image.topic_by_id(state.topic_id)
    return ctx.image.topic(state.name)


def _failed(state: DeleteTopicState, error: KafkaError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=state.name, topic_id=state.topic_id, error_code=error.error, error_message=error.message
    )
