"""Offsets and records of partitions."""

from millrace.admin.offsets import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Isolation,
    ListedOffset,
    end_offsets,
    list_offsets,
)
from millrace.admin.records import END, delete_records
from millrace.client import Client, TopicPartition
from millrace.errors import Error

from ..transaction_writer import TransactionWriter
from .conftest import Send


async def offset(client: Client, partition: TopicPartition, timestamp: int) -> int | None:
    return (await list_offsets(client, {partition: timestamp}))[partition].offset


async def test_offsets_are_listed_by_position_and_by_time(client: Client, topic: str, send: Send) -> None:
    send(topic, 0, 5)
    partition = TopicPartition(topic, 0)
    assert await offset(client, partition, EARLIEST) == 0
    assert await offset(client, partition, LATEST) == 5
    assert await offset(client, partition, 1002) == 2
    assert await offset(client, partition, 9999) is None
    found = (await list_offsets(client, {partition: MAX_TIMESTAMP}))[partition]
    assert found == ListedOffset(4, 1004, 0)


async def test_unknown_partitions_fail_and_the_others_are_listed(client: Client, topic: str) -> None:
    first, beyond, absent = TopicPartition(topic, 0), TopicPartition(topic, 7), TopicPartition("absent", 0)
    listed = await list_offsets(client, dict.fromkeys([absent, first, beyond], LATEST))
    assert listed[first].offset == 0
    assert {key: error.error for key, error in listed.failed.items()} == dict.fromkeys(
        [absent, beyond], Error.UNKNOWN_TOPIC_OR_PARTITION
    )
    assert await end_offsets(client, [absent, first, beyond]) == {first: 0}
    assert await end_offsets(client, []) == {}


async def test_the_end_for_committed_readers_is_before_an_open_transaction(
    client: Client, bootstrap: str, topic: str
) -> None:
    partition = TopicPartition(topic, 0)
    writer = TransactionWriter(bootstrap, f"writer-of-{topic}")
    writer.write(topic, 0)
    assert await offset(client, partition, LATEST) == 1
    listed = await list_offsets(client, {partition: LATEST}, isolation=Isolation.READ_COMMITTED)
    assert listed[partition].offset == 0
    writer.producer.abort_transaction()


async def test_records_are_deleted_up_to_an_offset(client: Client, topic: str, send: Send) -> None:
    send(topic, 0, 5)
    send(topic, 1, 5)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    absent = TopicPartition("absent", 0)
    deleted = await delete_records(client, {first: 2, second: END, absent: 0})
    assert deleted.succeeded == {first: 2, second: 5}
    assert deleted.failed[absent].error is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert await offset(client, first, EARLIEST) == 2
    beyond = await delete_records(client, {first: 9})
    assert beyond.failed[first].error is Error.OFFSET_OUT_OF_RANGE
