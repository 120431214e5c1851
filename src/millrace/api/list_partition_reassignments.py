"""ListPartitionReassignments v0: none, because replicas do not move between brokers."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def handle(ctx: Context, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)
