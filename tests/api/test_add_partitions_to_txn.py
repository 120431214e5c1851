"""AddPartitionsToTxn: of clients (v0-3), and in batches (v4-5)."""

import pytest

from millrace.errors import Error
from millrace.txn.transaction_state import ProducerIdentity
from millrace.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

from ..node import create_topic
from .api import Api
from .conftest import Call
from .transactions import init_producer

FOR_CLIENTS = pytest.mark.parametrize("version", range(4))
IN_BATCHES = pytest.mark.parametrize("version", [4, 5])

Outcome = dict[tuple[str, int], Error]


@pytest.fixture(autouse=True)
def topics(api: Api) -> None:
    create_topic(api, "t", 2)
    create_topic(api, "u", 1)


def topics_of(partitions: dict[str, list[int]]) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in partitions.items()]


def outcome_of(topic_results: list) -> Outcome:
    return {
        (topic.name, result.partition_index): Error(result.partition_error_code)
        for topic in topic_results
        for result in topic.results_by_partition
    }


def add(
    call: Call, version: int, producer: ProducerIdentity, partitions: dict[str, list[int]], name: str = "id"
) -> Outcome:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=topics_of(partitions),
    )
    return outcome_of(call(request, version).results_by_topic_v3_and_below)


def transaction(
    producer: ProducerIdentity,
    partitions: dict[str, list[int]],
    name: str = "id",
    *,
    verify_only: bool = False,
) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=name,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        verify_only=verify_only,
        topics=topics_of(partitions),
    )


@FOR_CLIENTS
def test_partitions_become_part_of_the_transaction(call: Call, api: Api, version: int) -> None:
    outcome = add(call, version, init_producer(call), {"t": [0, 1], "u": [0]})
    assert outcome == dict.fromkeys([("t", 0), ("t", 1), ("u", 0)], Error.NONE)
    found = api.transactions.find("id")
    assert found is not None and found.partitions == set(outcome)


@FOR_CLIENTS
def test_one_unknown_partition_keeps_the_others_out(call: Call, api: Api, version: int) -> None:
    outcome = add(call, version, init_producer(call), {"t": [0, 2], "none": [0]})
    assert outcome == {
        ("t", 0): Error.OPERATION_NOT_ATTEMPTED,
        ("t", 2): Error.UNKNOWN_TOPIC_OR_PARTITION,
        ("none", 0): Error.UNKNOWN_TOPIC_OR_PARTITION,
    }
    found = api.transactions.find("id")
    assert found is not None and not found.partitions


@FOR_CLIENTS
def test_a_fenced_producer_gets_an_error_that_its_version_knows(call: Call, version: int) -> None:
    zombie = init_producer(call)
    init_producer(call)
    fenced = Error.PRODUCER_FENCED if version >= 2 else Error.INVALID_PRODUCER_EPOCH
    assert add(call, version, zombie, {"t": [0]}) == {("t", 0): fenced}


@FOR_CLIENTS
def test_an_unknown_id_and_an_empty_one_are_refused(call: Call, version: int) -> None:
    producer = init_producer(call)
    unknown = add(call, version, producer, {"t": [0]}, name="unknown")
    assert unknown == {("t", 0): Error.INVALID_PRODUCER_ID_MAPPING}
    assert add(call, version, producer, {"t": [0]}, name="") == {("t", 0): Error.INVALID_REQUEST}


@IN_BATCHES
def test_several_transactions_are_answered_apart(call: Call, api: Api, version: int) -> None:
    good, fenced = init_producer(call, "good"), init_producer(call, "fenced")
    init_producer(call, "fenced")
    request = AddPartitionsToTxnRequest(
        transactions=[
            transaction(good, {"t": [0]}, "good"),
            transaction(fenced, {"t": [1]}, "fenced"),
            transaction(good, {"none": [0]}, "good"),
        ]
    )
    results = call(request, version).results_by_transaction
    assert [(result.transactional_id, outcome_of(result.topic_results)) for result in results] == [
        ("good", {("t", 0): Error.NONE}),
        ("fenced", {("t", 1): Error.PRODUCER_FENCED}),
        ("good", {("none", 0): Error.UNKNOWN_TOPIC_OR_PARTITION}),
    ]
    found = api.transactions.find("good")
    assert found is not None and found.client_version == (2 if version == 5 else 0)


@IN_BATCHES
def test_verifying_adds_nothing(call: Call, api: Api, version: int) -> None:
    producer = init_producer(call)
    call(AddPartitionsToTxnRequest(transactions=[transaction(producer, {"t": [0]})]), version)
    request = AddPartitionsToTxnRequest(transactions=[transaction(producer, {"t": [0, 1]}, verify_only=True)])
    (result,) = call(request, version).results_by_transaction
    assert outcome_of(result.topic_results) == {
        ("t", 0): Error.NONE,
        ("t", 1): Error.TRANSACTION_ABORTABLE,
    }
    found = api.transactions.find("id")
    assert found is not None and found.partitions == {("t", 0)}
