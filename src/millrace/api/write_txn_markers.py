"""WriteTxnMarkers v1-2. v2: transaction version.

Sent by a coordinator on another broker, or by an operator's tool that aborts a hanging transaction.
"""

from __future__ import annotations

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.steps import Steps
from millrace.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


def handle(ctx: Context, request: WriteTxnMarkersRequest) -> Steps[WriteTxnMarkersResponse]:
    response = WriteTxnMarkersResponse()
    for marker in request.markers:
        response.markers.append((yield from _write(ctx, marker)))
        yield
    return response


def _write(ctx: Context, marker: WritableTxnMarker) -> Steps[WritableTxnMarkerResult]:
    result = WritableTxnMarkerResult(producer_id=marker.producer_id)
    for topic in marker.topics:
        written = WritableTxnMarkerTopicResult(name=topic.name)
        result.topics.append(written)
        # A partition that is named twice gets one marker.
        for index in dict.fromkeys(topic.partition_indexes):
            error = _outcome(ctx, marker, topic.name, index)
            written.partitions.append(WritableTxnMarkerPartitionResult(index, error))
            yield
        yield
    return result


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
