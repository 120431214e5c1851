"""Transactions, and the producers that write them."""

import time
from collections.abc import Iterator

import pytest

from millrace.admin.producers import describe_producers
from millrace.admin.transactions import (
    abort_in_partition,
    describe_transactions,
    fence_producer,
    find_hanging_transactions,
    find_open_transaction,
    list_transactions,
)
from millrace.client import Client, TopicPartition
from millrace.errors import Error, KafkaError

from ..transaction_writer import TransactionWriter
from .conftest import NODE_ID


@pytest.fixture
def writer(bootstrap: str, topic: str) -> Iterator[TransactionWriter]:
    """A producer with an open transaction in partition 1."""
    writer = TransactionWriter(bootstrap, f"writer-of-{topic}")
    writer.write(topic, 1)
    yield writer


async def state_of(client: Client, transactional_id: str) -> str:
    return (await describe_transactions(client, [transactional_id]))[transactional_id].state


async def test_an_open_transaction_is_listed_and_described(
    client: Client, topic: str, writer: TransactionWriter
) -> None:
    found = {listed.transactional_id: listed for listed in await list_transactions(client)}
    described = (await describe_transactions(client, [writer.transactional_id]))[writer.transactional_id]
    assert found[writer.transactional_id].coordinator_id == described.coordinator_id == NODE_ID
    assert found[writer.transactional_id].producer_id == described.producer_id
    assert found[writer.transactional_id].state == described.state == "Ongoing"
    assert described.partitions == (TopicPartition(topic, 1),)
    assert described.started_ms is not None
    assert abs(described.started_ms - time.time() * 1000) < 60_000
    writer.producer.commit_transaction()


async def test_transactions_are_listed_by_id_and_age(client: Client, writer: TransactionWriter) -> None:
    (listed,) = await list_transactions(client, id_pattern=f"{writer.transactional_id}")
    assert listed.transactional_id == writer.transactional_id
    assert await list_transactions(client, longer_than_ms=3_600_000) == []
    only = await list_transactions(client, producer_ids=[listed.producer_id])
    assert only == [listed]


async def test_an_unknown_transactional_id_fails(client: Client, writer: TransactionWriter) -> None:
    described = await describe_transactions(client, ["nobody", writer.transactional_id])
    assert list(described.succeeded) == [writer.transactional_id]
    assert described.failed["nobody"].error is Error.TRANSACTIONAL_ID_NOT_FOUND


async def test_the_producers_of_a_partition_are_described(
    client: Client, topic: str, writer: TransactionWriter
) -> None:
    first, second, absent = TopicPartition(topic, 0), TopicPartition(topic, 1), TopicPartition("absent", 0)
    described = await describe_producers(client, [first, second, absent])
    assert described[first] == []
    (producer,) = described[second]
    assert (producer.last_sequence, producer.transaction_start) == (0, 0)
    assert described.failed[absent].error is Error.UNKNOWN_TOPIC_OR_PARTITION
    at_broker = await describe_producers(client, [second], broker_id=NODE_ID)
    assert at_broker[second] == [producer]


async def test_a_transaction_is_aborted_in_one_partition(
    client: Client, topic: str, writer: TransactionWriter
) -> None:
    partition = TopicPartition(topic, 1)
    producer = await find_open_transaction(client, partition, 0)
    with pytest.raises(KafkaError, match=f"starting at offset 5 on partition {topic}-1"):
        await find_open_transaction(client, partition, 5)
    await abort_in_partition(
        client, partition, producer.producer_id, producer.producer_epoch, producer.coordinator_epoch
    )
    (producer,) = (await describe_producers(client, [partition]))[partition]
    assert producer.transaction_start is None


async def test_fencing_a_producer_aborts_its_transaction(client: Client, writer: TransactionWriter) -> None:
    await fence_producer(client, writer.transactional_id)
    assert await state_of(client, writer.transactional_id) in ("CompleteAbort", "Empty")


async def test_a_transaction_that_no_coordinator_knows_hangs(
    client: Client, topic: str, writer: TransactionWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = TopicPartition(topic, 1)
    # A negative age makes candidates of all open transactions.
    assert await find_hanging_transactions(client, [partition], -60_000) == []
    assert await find_hanging_transactions(client, [partition], 3_600_000) == []

    async def knows_none(client: Client, **filters: object) -> list[object]:
        return []

    monkeypatch.setattr("millrace.admin.transactions.list_transactions", knows_none)
    (hanging,) = await find_hanging_transactions(client, [partition], -60_000, broker_id=NODE_ID)
    assert (hanging.partition, hanging.producer.transaction_start) == (partition, 0)
