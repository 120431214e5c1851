"""ListPartitionReassignments v0: the partitions that get other replicas; a broker that is alone has none."""

from __future__ import annotations

from collections.abc import Iterable

from millrace.api.context import Context
from millrace.cluster.image import ClusterImage
from millrace.steps import Steps
from millrace.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def handle(
    ctx: Context, request: ListPartitionReassignmentsRequest
) -> Steps[ListPartitionReassignmentsResponse]:
    image = ctx.image
    response = ListPartitionReassignmentsResponse(error_message=None)
    named: Iterable[tuple[str, Iterable[int]]] = (
        [(topic.name, range(topic.partitions)) for topic in image.topics.values()]
        if request.topics is None
        else [(topic.name, topic.partition_indexes) for topic in request.topics]
    )
    for name, indexes in named:
        ongoing = list(_ongoing(image, name, indexes))
        if ongoing:
            response.topics.append(OngoingTopicReassignment(name, ongoing))
        yield
    return response


def _ongoing(
    image: ClusterImage, name: str, indexes: Iterable[int]
) -> Iterable[OngoingPartitionReassignment]:
    for index in indexes:
        state = image.partition(name, index)
        if state is not None and (state.adding or state.removing):
            yield OngoingPartitionReassignment(
                index, list(state.replicas), list(state.adding), list(state.removing)
            )
