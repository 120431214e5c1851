"""WriteTxnMarkers v1-2. v2: transaction version.

What a coordinator on another broker, or an operator's tool that aborts a hanging transaction, asks for.
"""

from __future__ import annotations

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


def handle(ctx: Context, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(markers=[_write(ctx, marker) for marker in request.markers])


def _write(ctx: Context, marker: WritableTxnMarker) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(
                        partition_index=index, error_code=_outcome(ctx, marker, topic.name, index)
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )


def _outcome(ctx: Context, marker: WritableTxnMarker, topic: str, index: int) -> Error:
    try:
        ctx.partitions.leader(topic, index).write_marker(
            marker.producer_id,
            marker.producer_epoch,
            marker.transaction_result,
            marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
        )
    except KafkaError as error:
        return error.error
    return Error.NONE
