"""ElectLeaders v0-2. v1: unclean elections. v2: flexible.

A partition whose preferred replica leads needs no election. A broker that is alone never elects another
leader: with one replica, none is available. In a cluster the controller elects.
"""

from __future__ import annotations

from collections.abc import Coroutine
from enum import IntEnum
from functools import partial
from typing import Any

from millrace.api.context import Context
from millrace.cluster.cluster_store import ClusterStore
from millrace.cluster.image import NO_LEADER, ClusterImage
from millrace.errors import Error, KafkaError
from millrace.steps import Steps, each
from millrace.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


class Election(IntEnum):
    """Kinds of elections, numbered as the protocol numbers them."""

    PREFERRED = 0
    UNCLEAN = 1


def handle(
    ctx: Context, request: ElectLeadersRequest
) -> Steps[ElectLeadersResponse] | Coroutine[Any, Any, ElectLeadersResponse]:
    if ctx.services.cluster is not None and _election(request.election_type) is not None:
        return _elect_by_controller(ctx.services.cluster, request)
    return _elect_none(ctx, request)


async def _elect_by_controller(cluster: ClusterStore, request: ElectLeadersRequest) -> ElectLeadersResponse:
    named = request.topic_partitions
    outcomes = await cluster.call(
        "elect",
        partitions=None if named is None else {topic.topic: list(topic.partitions) for topic in named},
        unclean=request.election_type == Election.UNCLEAN,
    )
    results: dict[str, ReplicaElectionResult] = {}
    for topic, index, code, message in outcomes:
        if named is None and code == Error.ELECTION_NOT_NEEDED:
            # Partitions that need no election are left out if no partition was named.
            continue
        result = results.setdefault(topic, ReplicaElectionResult(topic, []))
        result.partition_result.append(PartitionResult(index, code, message))
    return ElectLeadersResponse(replica_election_results=list(results.values()))


def _elect_none(ctx: Context, request: ElectLeadersRequest) -> Steps[ElectLeadersResponse]:
    image, response = ctx.image, ElectLeadersResponse()
    election = _election(request.election_type)
    if election is None:
        response.error_code = Error.INVALID_REQUEST
    if request.topic_partitions is None:
        for topic in image.topics.values() if election is not None else ():
            elect = partial(_elect, image, topic.name, election)
            results = yield from each(range(topic.partitions), elect)
            # Partitions that need no election are left out if no partition was named.
            needed = [result for result in results if result.error_code != Error.ELECTION_NOT_NEEDED]
            response.replica_election_results.append(ReplicaElectionResult(topic.name, needed))
            yield
        return response
    for named in request.topic_partitions:
        results = yield from each(named.partitions, partial(_elect, image, named.topic, election))
        response.replica_election_results.append(ReplicaElectionResult(named.topic, results))
        yield
    return response


def _election(election_type: int) -> Election | None:
    try:
        return Election(election_type)
    except ValueError:
        return None


def _elect(image: ClusterImage, topic: str, election: Election | None, index: int) -> PartitionResult:
    refusal = _refusal(image, topic, election, index)
    return PartitionResult(index, refusal.error, refusal.message)


def _refusal(image: ClusterImage, topic: str, election: Election | None, index: int) -> KafkaError:
    """The reason why no election takes place."""
    if election is None:
        return KafkaError(Error.INVALID_REQUEST, "Unknown election type")
    if topic not in image.topics:
        return KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}")
    state = image.partition(topic, index)
    if state is None:
        return KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{index}")
    if election is Election.PREFERRED and state.leader != state.replicas[0]:
        return KafkaError(Error.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader is not available.")
    if state.leader == NO_LEADER:
        return KafkaError(Error.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica can be elected.")
    return KafkaError(Error.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
