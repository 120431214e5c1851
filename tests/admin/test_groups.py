"""Groups of both protocols, and their committed offsets."""

import pytest

from millrace.admin.group_offsets import (
    PartitionLag,
    commit_offsets,
    committed_offsets,
    delete_offsets,
    group_lags,
)
from millrace.admin.groups import delete_groups, describe_groups, list_groups
from millrace.client import Client, TopicPartition
from millrace.errors import Error, KafkaError

from ..group_members import members
from .conftest import NODE_ID, Send

PROTOCOLS = ("classic", "consumer")


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_group_with_members_is_described(
    client: Client, bootstrap: str, topic: str, protocol: str
) -> None:
    group, both = f"group-of-{topic}", {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    with members(bootstrap, group, [topic], partitions=2, group_protocol=protocol):
        described = (await describe_groups(client, [group]))[group]
        listed = {found.group_id: found for found in await list_groups(client)}[group]
    assert described.state == listed.state == "Stable"
    assert listed.type.lower() == protocol
    assert described.is_consumer_group
    assert listed.is_consumer_group
    assert described.assigned == both
    assert (described.coordinator.id, str(described.coordinator.address)) == (NODE_ID, bootstrap)
    (member,) = described.members
    assert member.client_id == "member-1"
    if protocol == "consumer":
        assert set(member.target or ()) == both
        assert described.assignor == "uniform"
        assert member.epoch == described.epoch == described.assignment_epoch
    else:
        assert described.assignor == "range"
        assert (member.target, member.epoch, described.epoch) == (None, None, None)


async def test_groups_are_listed_by_state_and_type(client: Client, topic: str) -> None:
    group = f"group-of-{topic}"
    (await commit_offsets(client, group, {TopicPartition(topic, 0): 0})).all()

    async def listed(**filters: list[str]) -> bool:
        return group in [found.group_id for found in await list_groups(client, **filters)]

    assert await listed(states=["Empty"])
    assert await listed(states=["Empty"], types=["classic"])
    assert not await listed(states=["Stable"])
    assert not await listed(types=["consumer"])


async def test_a_group_that_does_not_exist_fails_and_the_others_are_described(
    client: Client, topic: str
) -> None:
    group = f"group-of-{topic}"
    (await commit_offsets(client, group, {TopicPartition(topic, 0): 0})).all()
    described = await describe_groups(client, ["nobody", group])
    assert described[group].state == "Empty"
    assert described.failed["nobody"].error is Error.GROUP_ID_NOT_FOUND


async def test_offsets_are_committed_and_fetched_with_their_lag(
    client: Client, topic: str, send: Send
) -> None:
    send(topic, 0, 5)
    group = f"group-of-{topic}"
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    (await commit_offsets(client, group, {first: 2, second: 0})).all()
    fetched = await committed_offsets(client, [group, "nobody"])
    assert {partition: found.offset for partition, found in fetched[group].items()} == {first: 2, second: 0}
    assert fetched[group][first].leader_epoch is None
    assert fetched["nobody"] == {}
    lags = (await group_lags(client, [group]))[group]
    assert lags == {first: PartitionLag(2, 5), second: PartitionLag(0, 0)}
    assert lags[first].lag == 3
    assert PartitionLag(2, None).lag is None


async def test_offsets_of_unknown_partitions_are_not_committed(client: Client, topic: str) -> None:
    known, unknown = TopicPartition(topic, 0), TopicPartition("absent", 0)
    committed = await commit_offsets(client, f"group-of-{topic}", {known: 0, unknown: 0})
    assert list(committed.succeeded) == [known]
    assert committed.failed[unknown].error is Error.UNKNOWN_TOPIC_OR_PARTITION


async def test_offsets_are_deleted(client: Client, bootstrap: str, topic: str) -> None:
    group = f"group-of-{topic}"
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    (await commit_offsets(client, group, {first: 0, second: 0})).all()
    assert list((await delete_offsets(client, group, [first])).all()) == [first]
    assert list((await committed_offsets(client, [group]))[group]) == [second]
    with members(bootstrap, group, [topic], partitions=2):
        deleted = await delete_offsets(client, group, [second])
    assert deleted.failed[second].error is Error.GROUP_SUBSCRIBED_TO_TOPIC
    with pytest.raises(KafkaError) as failure:
        await delete_offsets(client, "nobody", [second])
    assert failure.value.error is Error.GROUP_ID_NOT_FOUND


async def test_groups_are_deleted(client: Client, bootstrap: str, topic: str) -> None:
    empty, busy = f"empty-of-{topic}", f"busy-of-{topic}"
    (await commit_offsets(client, empty, {TopicPartition(topic, 0): 0})).all()
    with members(bootstrap, busy, [topic], partitions=2):
        deleted = await delete_groups(client, [empty, busy, "nobody"])
    assert list(deleted.succeeded) == [empty]
    assert {key: error.error for key, error in deleted.failed.items()} == {
        busy: Error.NON_EMPTY_GROUP,
        "nobody": Error.GROUP_ID_NOT_FOUND,
    }
