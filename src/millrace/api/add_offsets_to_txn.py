"""AddOffsetsToTxn v0-4. v2: PRODUCER_FENCED. v3: flexible."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.txn.transaction import ProducerIdentity
from millrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

PRODUCER_FENCED_FROM = 2


def handle(ctx: Context, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    offsets = ctx.groups.runtime
    if not offsets.is_loading:
        # Brings the topic into being: the transaction's marker needs it.
        offsets.shard_of(request.group_id)
    try:
        ctx.transactions.add_partitions(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            [(offsets.topic, offsets.partition_of(request.group_id))],
        )
    except KafkaError as error:
        if error.error is Error.PRODUCER_FENCED and ctx.api_version < PRODUCER_FENCED_FROM:
            raise KafkaError(Error.INVALID_PRODUCER_EPOCH) from error
        raise
    return AddOffsetsToTxnResponse()
