"""FindCoordinator v0-6. v1: key types. v3: flexible. v4: several keys. v6: share groups (refused)."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.coordinator.runtime import Runtime
from millrace.errors import Error, KafkaError
from millrace.groups.shard import GroupShard
from millrace.txn.shard import TransactionShard
from millrace.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

SEVERAL_KEYS_FROM = 4
GROUP, TRANSACTION = 0, 1


def handle(ctx: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if ctx.api_version >= SEVERAL_KEYS_FROM:
        return FindCoordinatorResponse(
            coordinators=[_find(ctx, request.key_type, key) for key in request.coordinator_keys]
        )
    found = _find(ctx, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(ctx: Context, key_type: int, key: str) -> Coordinator:
    try:
        _ask_coordinator(ctx, key_type, key)
    except KafkaError as error:
        return Coordinator(key=key, node_id=-1, port=-1, error_code=error.error, error_message=error.message)
    return Coordinator(
        key=key,
        node_id=ctx.cluster.node_id,
        host=ctx.listener.advertised_host,
        port=ctx.listener.advertised_port,
    )


def _ask_coordinator(ctx: Context, key_type: int, key: str) -> None:
    """This broker coordinates everything; asking brings the internal topic into being."""
    runtime: Runtime[GroupShard] | Runtime[TransactionShard]
    if key_type == GROUP:
        runtime = ctx.groups.runtime
    elif key_type == TRANSACTION:
        runtime = ctx.transactions.runtime
    else:
        raise KafkaError(Error.INVALID_REQUEST, f"There is no coordinator for keys of type {key_type}.")
    if not runtime.is_loading:
        runtime.shard_of(key)
