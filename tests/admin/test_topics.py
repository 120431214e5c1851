import pytest

from millrace.admin.cluster import describe_cluster
from millrace.admin.topics import (
    NewPartitions,
    NewTopic,
    create_partitions,
    create_topics,
    delete_topics,
    describe_topics,
    existing_topics,
    list_topics,
    wait_for_topics,
)
from millrace.client import Client, Connection, TopicPartition
from millrace.errors import Error, KafkaError
from millrace.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from millrace.wire.schema import ZERO_UUID

from .conftest import NODE_ID


async def test_the_cluster_is_described(client: Client, bootstrap: str) -> None:
    cluster = await describe_cluster(client)
    assert cluster.cluster_id
    assert cluster.controller_id == NODE_ID
    assert cluster.broker_ids == [NODE_ID]
    assert str(cluster.brokers[0].address) == bootstrap


async def test_a_created_topic_is_listed_and_described(client: Client, name: str) -> None:
    new = NewTopic(name, partitions=3, replication_factor=1, configs={"retention.ms": "1000"})
    created = (await create_topics(client, [new])).all()
    await wait_for_topics(client, [name])
    listed = (await list_topics(client))[name]
    described = (await describe_topics(client, [name]))[name]
    assert created == {name: described.topic_id}
    assert described.topic_id not in (ZERO_UUID, b"")
    assert listed.topic_partitions == [TopicPartition(name, index) for index in range(3)]
    assert [(partition.leader, partition.replicas, partition.isr) for partition in described.partitions] == [
        (NODE_ID, (NODE_ID,), (NODE_ID,))
    ] * 3
    assert not described.is_internal
    assert described.partitions[0].eligible_leaders == ()
    assert listed.partitions[0].eligible_leaders is None


async def test_partitions_are_described_over_several_responses(client: Client, name: str) -> None:
    (await create_topics(client, [NewTopic(name, partitions=5, replication_factor=1)])).all()
    await wait_for_topics(client, [name])
    described = await describe_topics(client, [name], partitions_per_response=2)
    assert [partition.index for partition in described[name].partitions] == [0, 1, 2, 3, 4]


async def test_brokers_without_the_newer_request_describe_topics_too(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    offers = Connection.offers
    monkeypatch.setattr(
        Connection,
        "offers",
        lambda self, request, lowest=0: (
            request is not DescribeTopicPartitionsRequest and offers(self, request, lowest)
        ),
    )
    described = await describe_topics(client, [topic, "absent"])
    assert described[topic].partitions[1].leader == NODE_ID
    assert described[topic].partitions[1].eligible_leaders is None
    assert described.failed["absent"].error is Error.UNKNOWN_TOPIC_OR_PARTITION


async def test_the_broker_chooses_what_a_new_topic_leaves_out(client: Client, name: str) -> None:
    (await create_topics(client, [NewTopic(name)])).all()
    await wait_for_topics(client, [name])
    assert len((await list_topics(client))[name].partitions) == 1


async def test_replicas_can_be_assigned(client: Client, name: str) -> None:
    (await create_topics(client, [NewTopic(name, assignments=[[NODE_ID], [NODE_ID]])])).all()
    await wait_for_topics(client, [name])
    assert len((await list_topics(client))[name].partitions) == 2


async def test_one_topic_fails_and_the_others_are_created(client: Client, topic: str, name: str) -> None:
    created = await create_topics(
        client, [NewTopic(topic, 1, 1), NewTopic(f"{name}-too", 1, 1), NewTopic("not a name", 1, 1)]
    )
    assert list(created.succeeded) == [f"{name}-too"]
    assert {key: error.error for key, error in created.failed.items()} == {
        topic: Error.TOPIC_ALREADY_EXISTS,
        "not a name": Error.INVALID_TOPIC_EXCEPTION,
    }
    assert f"Topic '{topic}' already exists." in created.failed[topic].message


async def test_validating_creates_nothing(client: Client, name: str) -> None:
    (await create_topics(client, [NewTopic(name, 1, 1)], validate_only=True)).all()
    assert name not in await list_topics(client)


async def test_partitions_are_added(client: Client, topic: str) -> None:
    (await create_partitions(client, {topic: NewPartitions(3)})).all()
    await wait_for_topics(client, [topic])
    extended = await create_partitions(client, {topic: NewPartitions(2), "absent": NewPartitions(2)})
    assert extended.failed[topic].error is Error.INVALID_PARTITIONS
    assert extended.failed["absent"].error is Error.UNKNOWN_TOPIC_OR_PARTITION


async def test_topics_are_deleted(client: Client, topic: str) -> None:
    deleted = await delete_topics(client, [topic, "absent"])
    assert list(deleted.succeeded) == [topic]
    assert deleted.failed["absent"].error is Error.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_that_does_not_exist_is_not_found(client: Client, topic: str) -> None:
    assert list(await existing_topics(client, ["absent", topic])) == [topic]
    assert await existing_topics(client, []) == {}
    described = await describe_topics(client, ["absent", topic])
    assert list(described.succeeded) == [topic]
    with pytest.raises(KafkaError) as failure:
        described.all()
    assert failure.value.error is Error.UNKNOWN_TOPIC_OR_PARTITION


async def test_waiting_for_a_topic_that_never_comes_ends(bootstrap: str) -> None:
    async with Client(bootstrap, timeout_seconds=0.2) as client:
        with pytest.raises(KafkaError, match="topic absent has no leaders yet"):
            await wait_for_topics(client, ["absent"])
