"""Elections and reassignments, as a lone broker answers them."""

import pytest

from millrace.admin.reassignments import ElectionType, alter_reassignments, elect_leaders, list_reassignments
from millrace.client import Client, TopicPartition
from millrace.errors import Error

from .conftest import NODE_ID


@pytest.mark.parametrize("election_type", ElectionType)
async def test_an_election_is_not_needed_if_the_leader_is_the_wanted_one(
    client: Client, topic: str, election_type: ElectionType
) -> None:
    partition, absent = TopicPartition(topic, 0), TopicPartition("absent", 0)
    elected = await elect_leaders(client, [partition, absent], election_type)
    assert elected.failed[partition].error is Error.ELECTION_NOT_NEEDED
    assert elected.failed[absent].error is Error.UNKNOWN_TOPIC_OR_PARTITION


async def test_replicas_are_reassigned(client: Client, topic: str) -> None:
    stays, cancelled, absent = TopicPartition(topic, 0), TopicPartition(topic, 1), TopicPartition("absent", 0)
    altered = await alter_reassignments(client, {stays: [NODE_ID], cancelled: None, absent: [99]})
    assert list(altered.succeeded) == [stays]
    assert altered.failed[cancelled].error is Error.NO_REASSIGNMENT_IN_PROGRESS
    assert altered.failed[absent].error is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert await list_reassignments(client) == {}
    assert await list_reassignments(client, [stays]) == {}
