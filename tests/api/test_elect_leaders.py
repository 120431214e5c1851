"""ElectLeaders: no election is needed, or none is possible."""

import pytest

from millrace.cluster.image import NO_LEADER
from millrace.errors import Error
from millrace.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

from ..node import create_topic, finish
from .api import Api
from .conftest import Call

PREFERRED, UNCLEAN = 0, 1


def elected(call: Call, election: int, partitions: list[TopicPartitions] | None) -> dict[str, list[Error]]:
    response = call(ElectLeadersRequest(election, partitions))
    assert response.error_code == Error.NONE
    return {
        result.topic: [Error(partition.error_code) for partition in result.partition_result]
        for result in response.replica_election_results
    }


def test_a_partition_that_has_its_leader_needs_no_election(call: Call, api: Api) -> None:
    create_topic(api, "orders", 2)
    named = [TopicPartitions("orders", [0, 1])]
    for election in (PREFERRED, UNCLEAN):
        assert elected(call, election, named) == {"orders": [Error.ELECTION_NOT_NEEDED] * 2}
        assert elected(call, election, None) == {"orders": []}


@pytest.mark.parametrize(
    ("election", "error"),
    [
        (PREFERRED, Error.PREFERRED_LEADER_NOT_AVAILABLE),
        (UNCLEAN, Error.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_an_offline_partition_has_no_replica_to_elect(
    call: Call, api: Api, election: int, error: Error
) -> None:
    state = create_topic(api, "orders", 2).states[1]
    offline = state._replace(leader=NO_LEADER, isr=(), offline=state.replicas)
    finish(api.metadata.alter_partitions({"orders": {1: offline}}))
    assert elected(call, election, [TopicPartitions("orders", [0, 1])]) == {
        "orders": [Error.ELECTION_NOT_NEEDED, error]
    }
    assert elected(call, election, None) == {"orders": [error]}
