"""WriteTxnMarkers v1-2. v2: transaction version.

Sent by a coordinator on another broker, or by an operator's tool that aborts a hanging transaction.
"""

from __future__ import annotations

from functools import partial

from millrace.api.context import Context
from millrace.deferred import Eventual, gather
from millrace.errors import KafkaError
from millrace.steps import Steps
from millrace.txn.marker_channel import LocalMarkerChannel, Marker
from millrace.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


def handle(ctx: Context, request: WriteTxnMarkersRequest) -> Steps[Eventual[WriteTxnMarkersResponse]]:
    channel = LocalMarkerChannel(ctx.services.partitions)
    response = WriteTxnMarkersResponse()
    waits: list[Eventual[None]] = []
    for marker in request.markers:
        response.markers.append((yield from _write(channel, marker, waits)))
        yield
    return gather(waits, lambda _: response)


def _write(
    channel: LocalMarkerChannel, asked: WritableTxnMarker, waits: list[Eventual[None]]
) -> Steps[WritableTxnMarkerResult]:
    result = WritableTxnMarkerResult(producer_id=asked.producer_id)
    marker = Marker(
        asked.producer_id,
        asked.producer_epoch,
        asked.transaction_result,
        asked.coordinator_epoch,
        asked.transaction_version,
    )
    for topic in asked.topics:
        written = WritableTxnMarkerTopicResult(name=topic.name)
        result.topics.append(written)
        # A partition that is named twice gets one marker.
        for index in dict.fromkeys(topic.partition_indexes):
            outcome = WritableTxnMarkerPartitionResult(index)
            written.partitions.append(outcome)
            committed = channel.write((topic.name, index), marker).convert(
                _nothing, partial(_failed, outcome)
            )
            if not committed.resolved:
                waits.append(committed)
            yield
        yield
    return result


def _nothing(_: None) -> None:
    return None


def _failed(outcome: WritableTxnMarkerPartitionResult, error: BaseException) -> None:
    if not isinstance(error, KafkaError):
        raise error
    outcome.error_code = error.error
