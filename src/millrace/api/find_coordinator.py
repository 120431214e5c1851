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
    """Raise KafkaError unless the key has a coordinator; the first request creates the internal topic."""
    runtime: Runtime[GroupShard] | Runtime[TransactionShard]
    if key_type == GROUP:
        runtime = ctx.groups.runtime
    elif key_type == TRANSACTION:
        runtime = ctx.transactions.runtime
    else:
        raise KafkaError(Error.INVALID_REQUEST, f"There is no coordinator for keys of type {key_type}.")
    try:
        runtime.shard_of(key)
    except KafkaError as error:
        # A coordinator that is still loading can be found. One without its partition cannot: clients retry.
        if error.error is Error.NOT_COORDINATOR:
            raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE, error.message) from error
        if error.error is not Error.COORDINATOR_LOAD_IN_PROGRESS:
            raise
