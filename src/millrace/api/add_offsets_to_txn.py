"""AddOffsetsToTxn v0-4. v2: PRODUCER_FENCED. v3: flexible."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.deferred import Deferred
from millrace.errors import Error, KafkaError
from millrace.txn.transaction_state import ProducerIdentity
from millrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

PRODUCER_FENCED_FROM = 2


async def handle(ctx: Context, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    offsets = ctx.services.groups.runtime
    # The transaction's marker needs the topic.
    await offsets.ensure_topic()
    try:
        ctx.services.transactions.add_partitions(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            [(offsets.topic, offsets.partition_of(request.group_id))],
        )
    except KafkaError as error:
        if error.error is Error.PRODUCER_FENCED and ctx.api_version < PRODUCER_FENCED_FROM:
            raise KafkaError(Error.INVALID_PRODUCER_EPOCH) from error
        raise
    added = ctx.services.transactions.settled(request.transactional_id, AddOffsetsToTxnResponse())
    return await added if isinstance(added, Deferred) else added
