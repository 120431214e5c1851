"""Produce in a transaction: the first batch on a partition is verified, or makes it part of it."""

import asyncio
import inspect
import time

import pytest

from millrace.api import produce
from millrace.deferred import Deferred
from millrace.errors import Error, KafkaError
from millrace.replication.partition import Partition
from millrace.txn.transaction_state import ProducerIdentity
from millrace.wire.messages.end_txn import EndTxnRequest
from millrace.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

from ..coordinator.replicas import FOLLOWER, catch_up, replicate
from ..node import create_topic
from ..records import batch
from ..transactional import read_committed, transactional_batch
from .api import Api
from .conftest import Call
from .transactions import begin, init_producer

OLD, KNOWS_ABORTABLE, JOINS = 10, 11, 12


@pytest.fixture
def orders(api: Api) -> Partition:
    create_topic(api, "orders", 1)
    return api.partitions.leader("orders", 0)


class Sender:
    """Sends batches of a transactional producer."""

    def __init__(self, call: Call, producer: ProducerIdentity) -> None:
        self._call = call
        self.producer = producer

    def send(
        self, *values: bytes, version: int, sequence: int = 0, transactional_id: str | None = "id"
    ) -> PartitionProduceResponse:
        records = transactional_batch(
            values,
            int(time.time() * 1000),
            producer_id=self.producer.producer_id,
            epoch=self.producer.producer_epoch,
            sequence=sequence,
        )
        return self.send_raw(records, version=version, transactional_id=transactional_id)

    def send_raw(
        self, records: memoryview, *, version: int, transactional_id: str | None = "id"
    ) -> PartitionProduceResponse:
        data = TopicProduceData(
            name="orders", partition_data=[PartitionProduceData(index=0, records=records)]
        )
        request = ProduceRequest(acks=-1, transactional_id=transactional_id, topic_data=[data])
        (topic,) = self._call(request, version).responses
        response: PartitionProduceResponse = topic.partition_responses[0]
        return response

    def end(self, *, committed: bool, version: int) -> None:
        response = self._call(
            EndTxnRequest(
                transactional_id="id",
                producer_id=self.producer.producer_id,
                producer_epoch=self.producer.producer_epoch,
                committed=committed,
            ),
            version,
        )
        assert response.error_code == Error.NONE
        if version >= 5:
            self.producer = ProducerIdentity(response.producer_id, response.producer_epoch)


@pytest.fixture
def sender(call: Call, orders: Partition) -> Sender:
    return Sender(call, init_producer(call))


def test_a_partition_that_was_added_takes_the_transactions_records(
    call: Call, sender: Sender, orders: Partition
) -> None:
    begin(call, sender.producer, "orders")
    assert sender.send(b"a", version=OLD).error_code == Error.NONE
    assert sender.send(b"b", sequence=1, version=OLD).base_offset == 1
    assert orders.last_stable_offset == 0
    sender.end(committed=True, version=3)
    assert [value for _, value in read_committed(orders.log)] == [b"a", b"b"]


@pytest.mark.parametrize(
    ("version", "error"), [(OLD, Error.INVALID_TXN_STATE), (KNOWS_ABORTABLE, Error.TRANSACTION_ABORTABLE)]
)
def test_a_partition_that_was_not_added_refuses_them(
    sender: Sender, orders: Partition, version: int, error: Error
) -> None:
    assert sender.send(b"a", version=version).error_code == error
    assert orders.high_watermark == 0


def test_newer_clients_add_a_partition_by_producing_to_it(
    api: Api, sender: Sender, orders: Partition
) -> None:
    for value in (b"a", b"b", b"c"):
        assert sender.send(value, version=JOINS).error_code == Error.NONE
        found = api.transactions.find("id")
        assert found is not None and ("orders", 0) in found.partitions
        sender.end(committed=value != b"b", version=5)
    assert [value for _, value in read_committed(orders.log)] == [b"a", b"c"]


def test_a_late_batch_of_an_ended_transaction_is_refused(
    call: Call, sender: Sender, orders: Partition
) -> None:
    begin(call, sender.producer, "orders")
    sender.send(b"a", version=OLD)
    sender.end(committed=False, version=3)
    assert sender.send(b"late", sequence=1, version=OLD).error_code == Error.INVALID_TXN_STATE
    assert orders.last_stable_offset == orders.high_watermark


@pytest.mark.parametrize("version", [OLD, JOINS])
def test_attempts_of_a_fenced_producer_do_not_disturb_its_successor(
    call: Call, sender: Sender, version: int
) -> None:
    successor = Sender(call, init_producer(call))
    begin(call, successor.producer, "orders")
    assert successor.send(b"a", version=version).error_code == Error.NONE
    assert sender.send(b"z", version=version).error_code == Error.INVALID_PRODUCER_EPOCH
    assert successor.send(b"b", sequence=1, version=version).error_code == Error.NONE


def test_a_fenced_producer_is_refused(call: Call, sender: Sender) -> None:
    begin(call, sender.producer, "orders")
    sender.send(b"a", version=OLD)
    init_producer(call)
    for version in (OLD, JOINS):
        assert sender.send(b"b", sequence=1, version=version).error_code == Error.INVALID_PRODUCER_EPOCH


def test_records_of_a_transaction_need_its_id(sender: Sender, orders: Partition) -> None:
    response = sender.send(b"a", version=OLD, transactional_id=None)
    assert response.error_code == Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert orders.high_watermark == 0


@pytest.mark.parametrize("records", [b"", b"x" * 30, b"\0" * 100])
def test_records_that_are_no_batch_are_refused(sender: Sender, orders: Partition, records: bytes) -> None:
    refusal = sender.send_raw(memoryview(records), version=OLD).error_code
    assert refusal in (Error.INVALID_RECORD, Error.CORRUPT_MESSAGE)
    assert orders.high_watermark == 0


def test_a_batch_without_sequence_numbers_is_refused_and_leaves_no_trace(
    call: Call, sender: Sender, orders: Partition
) -> None:
    begin(call, sender.producer, "orders")
    assert sender.send(b"a", sequence=-1, version=OLD).error_code == Error.INVALID_RECORD
    assert sender.send(b"a", version=OLD).error_code == Error.NONE


def test_a_plain_batch_beside_a_transactional_id_is_a_plain_batch(sender: Sender, orders: Partition) -> None:
    assert sender.send_raw(memoryview(batch(b"plain")), version=OLD).error_code == Error.NONE
    assert orders.last_stable_offset == 1


@pytest.mark.parametrize(
    ("underlying", "version", "told"),
    [
        (Error.COORDINATOR_LOAD_IN_PROGRESS, JOINS, Error.NOT_ENOUGH_REPLICAS),
        (Error.NOT_COORDINATOR, OLD, Error.NOT_ENOUGH_REPLICAS),
        (Error.CONCURRENT_TRANSACTIONS, OLD, Error.NOT_ENOUGH_REPLICAS),
        (Error.CONCURRENT_TRANSACTIONS, JOINS, Error.CONCURRENT_TRANSACTIONS),
        (Error.INVALID_PRODUCER_ID_MAPPING, OLD, Error.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_errors_of_the_coordinator_become_ones_that_clients_try_again(
    api: Api,
    sender: Sender,
    monkeypatch: pytest.MonkeyPatch,
    underlying: Error,
    version: int,
    told: Error,
) -> None:
    def refuse(*_: object, **__: object) -> Deferred[None]:
        return Deferred.failing(KafkaError(underlying))

    monkeypatch.setattr(type(api.transactions), "verify", refuse)
    assert sender.send(b"a", version=version).error_code == told


def test_a_batch_behind_one_that_could_not_be_verified_waits_for_it(
    call: Call, api: Api, sender: Sender, orders: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two batches were in flight; the first has to be sent again, and must still come first."""
    begin(call, sender.producer, "orders")
    with monkeypatch.context() as patch:

        def refuse(*_: object, **__: object) -> Deferred[None]:
            return Deferred.failing(KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS))

        patch.setattr(type(api.transactions), "verify", refuse)
        sender.send(b"a", version=OLD)
    assert sender.send(b"b", sequence=1, version=OLD).error_code == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert sender.send(b"a", version=OLD).base_offset == 0
    assert sender.send(b"b", sequence=1, version=OLD).base_offset == 1


def test_an_empty_transactional_id_is_refused(sender: Sender, orders: Partition) -> None:
    refused = sender.send(b"a", version=JOINS, transactional_id="")
    assert refused.error_code == Error.INVALID_REQUEST
    assert orders.log.log_end_offset == 0


def state_log(api: Api) -> list[Partition]:
    return api.partitions.of_topic(api.transactions.runtime.topic)


def send_late(api: Api, sender: Sender) -> "asyncio.Task[ProduceResponse]":
    """Send a first batch whose coordinator waits for a replica."""
    records = transactional_batch(
        [b"a"],
        int(time.time() * 1000),
        producer_id=sender.producer.producer_id,
        epoch=sender.producer.producer_epoch,
    )
    data = TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=0, records=records)])
    api.api_version = JOINS
    late = produce.handle(api.context(), ProduceRequest(acks=-1, transactional_id="id", topic_data=[data]))
    assert inspect.iscoroutine(late)
    task = api.loop.create_task(late)
    api.loop.run_until_complete(asyncio.sleep(0))
    return task


def outcome(api: Api, sent: "asyncio.Task[ProduceResponse]") -> tuple[int, int]:
    response = api.loop.run_until_complete(sent)
    partition = response.responses[0].partition_responses[0]
    return partition.error_code, partition.base_offset


def test_a_first_batch_is_appended_when_the_coordinators_agreement_is_committed(
    api: Api, sender: Sender, orders: Partition
) -> None:
    replicate(state_log(api))
    sent = send_late(api, sender)
    assert not sent.done()
    assert orders.log.log_end_offset == 0
    catch_up(state_log(api))
    # Other transactions of the same coordinator go on meanwhile.
    api.transactions.init_producer_id("other", 60_000)
    assert outcome(api, sent) == (Error.NONE, 0)
    assert orders.last_stable_offset == 0


def test_a_first_batch_is_refused_when_the_coordinator_is_replaced(
    api: Api, sender: Sender, orders: Partition
) -> None:
    replicate(state_log(api))
    sent = send_late(api, sender)
    for partition in state_log(api):
        api.transactions.runtime.resigned(partition.index)
        partition.become_follower(1, FOLLOWER)
    assert outcome(api, sent) == (Error.NOT_ENOUGH_REPLICAS, -1)
    assert orders.log.log_end_offset == 0
