"""Elections and reassignments, which need a broker that offers them."""

import pytest

from millrace.admin.reassignments import (
    ElectionType,
    alter_reassignments,
    elect_leaders,
    list_reassignments,
)
from millrace.client import ApiNotOffered, Client, TopicPartition
from millrace.errors import Error
from millrace.wire.messages.elect_leaders import ElectLeadersRequest

from .conftest import NODE_ID


async def is_offered(client: Client) -> bool:
    return (await client.any_broker()).offers(ElectLeadersRequest)


async def test_an_election_says_that_the_leader_is_the_wanted_one(client: Client, topic: str) -> None:
    partition, absent = TopicPartition(topic, 0), TopicPartition("absent", 0)
    for kind in ElectionType:
        elected = await elect_leaders(client, [partition, absent], kind)
        if not await is_offered(client):
            assert isinstance(elected.failed[partition], ApiNotOffered)
            return
        assert elected.failed[partition].error is Error.ELECTION_NOT_NEEDED
        assert elected.failed[absent].error is Error.UNKNOWN_TOPIC_OR_PARTITION


async def test_replicas_can_be_reassigned(client: Client, topic: str) -> None:
    if not await is_offered(client):
        refused = await alter_reassignments(client, {TopicPartition(topic, 0): [NODE_ID]})
        assert isinstance(refused.failed[TopicPartition(topic, 0)], ApiNotOffered)
        with pytest.raises(ApiNotOffered):
            await list_reassignments(client)
        return
    stays, cancelled, moves = (
        TopicPartition(topic, 0),
        TopicPartition(topic, 1),
        TopicPartition("absent", 0),
    )
    altered = await alter_reassignments(client, {stays: [NODE_ID], cancelled: None, moves: [99]})
    assert list(altered.succeeded) == [stays]
    assert altered.failed[cancelled].error is Error.NO_REASSIGNMENT_IN_PROGRESS
    assert altered.failed[moves].error is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert await list_reassignments(client) == {}
    assert await list_reassignments(client, [stays]) == {}
