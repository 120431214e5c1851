"""FindCoordinator v0-6. v1: key types. v3: flexible. v4: several keys. v6: share groups (refused)."""

from __future__ import annotations

import logging
from functools import partial

from millrace.api.context import Context
from millrace.cluster.image import NO_LEADER, Endpoint
from millrace.errors import Error, KafkaError
from millrace.steps import each, finish
from millrace.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

logger = logging.getLogger(__name__)

SEVERAL_KEYS_FROM = 4
GROUP, TRANSACTION = 0, 1


async def handle(ctx: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    try:
        await _ensure_topic(ctx, request.key_type)
    except KafkaError as error:
        logger.error("cannot create the topic of a coordinator: %s", error)
    if ctx.api_version >= SEVERAL_KEYS_FROM:
        find = partial(_find, ctx, request.key_type)
        return FindCoordinatorResponse(coordinators=await finish(each(request.coordinator_keys, find)))
    found = _find(ctx, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _ensure_topic(ctx: Context, key_type: int) -> None:
    """The first request for a coordinator creates its internal topic."""
    if key_type == GROUP:
        await ctx.services.groups.runtime.ensure_topic()
    elif key_type == TRANSACTION:
        await ctx.services.transactions.runtime.ensure_topic()


def _find(ctx: Context, key_type: int, key: str) -> Coordinator:
    try:
        node_id, endpoint = _coordinator(ctx, key_type, key)
    except KafkaError as error:
        return Coordinator(key=key, node_id=-1, port=-1, error_code=error.error, error_message=error.message)
    return Coordinator(key=key, node_id=node_id, host=endpoint.host, port=endpoint.port)


def _coordinator(ctx: Context, key_type: int, key: str) -> tuple[int, Endpoint]:
    """The leader of the partition that keeps the state of a key."""
    if key_type == GROUP:
        topic, index = ctx.services.groups.runtime.topic, ctx.services.groups.runtime.partition_of(key)
    elif key_type == TRANSACTION:
        topic, index = (
            ctx.services.transactions.runtime.topic,
            ctx.services.transactions.runtime.partition_of(key),
        )
    else:
        raise KafkaError(Error.INVALID_REQUEST, f"There is no coordinator for keys of type {key_type}.")
    image = ctx.image
    state = image.partition(topic, index)
    if state is None or state.leader == NO_LEADER:
        reason = ctx.services.partitions.offline_reason(topic, index)
        raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE, reason or f"{topic}-{index} has no leader.")
    try:
        return state.leader, image.endpoint(state.leader, ctx.session.listener.name)
    except KafkaError as error:
        raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE, error.message) from error
