"""Partitions join transactions, by being added or by being produced to; verification of appends (KIP-890)."""

import pytest

from millrace.errors import Error
from millrace.testing.disk import FaultyDisk
from millrace.txn.transaction_state import ProducerIdentity, State

from .coordinator import Coordinator, error_of


def test_the_first_partition_starts_the_transaction(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    coordinator.timers.advance(500)
    coordinator.add(producer, ("t", 0))
    started_ms = coordinator.clock.now_ms()
    coordinator.timers.advance(500)
    coordinator.add(producer, ("t", 1), ("u", 0))
    transaction = coordinator.get()
    assert transaction.state is State.ONGOING
    assert transaction.partitions == {("t", 0), ("t", 1), ("u", 0)}
    assert (transaction.started_ms, transaction.updated_ms) == (started_ms, started_ms + 500)


def test_the_next_transaction_starts_with_no_partitions(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    coordinator.add(producer, ("t", 0))
    coordinator.end(producer)
    coordinator.timers.advance(500)
    coordinator.add(producer, ("u", 1))
    assert coordinator.get().partitions == {("u", 1)}
    assert coordinator.get().started_ms == coordinator.clock.now_ms()


def test_partitions_that_are_known_cost_no_record(coordinator: Coordinator, disk: FaultyDisk) -> None:
    producer = coordinator.init()
    coordinator.add(producer, ("t", 0), ("t", 1))
    writes = disk.writes
    coordinator.add(producer, ("t", 1))
    assert disk.writes == writes


def test_an_unknown_id_a_foreign_producer_and_a_fenced_one_are_told_apart(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    newer = ProducerIdentity(producer.producer_id, 1)
    foreign = ProducerIdentity(producer.producer_id + 1, 0)
    assert error_of(coordinator.add, producer, transactional_id="") is Error.INVALID_REQUEST
    assert error_of(coordinator.add, producer, transactional_id="x") is Error.INVALID_PRODUCER_ID_MAPPING
    assert error_of(coordinator.add, foreign, ("t", 0)) is Error.INVALID_PRODUCER_ID_MAPPING
    assert error_of(coordinator.add, newer, ("t", 0)) is Error.PRODUCER_FENCED
    assert coordinator.state() is State.EMPTY


def test_nothing_joins_a_transaction_whose_end_is_decided(coordinator: Coordinator, disk: FaultyDisk) -> None:
    producer = coordinator.init()
    coordinator.add(producer, ("t", 0))
    disk.fill(room=200)
    coordinator.end(producer)
    assert coordinator.state() is State.PREPARE_COMMIT
    assert error_of(coordinator.add, producer, ("t", 1)) is Error.CONCURRENT_TRANSACTIONS
    assert error_of(coordinator.produce, producer, "t", b"x") is Error.CONCURRENT_TRANSACTIONS


def test_what_could_not_be_written_down_has_not_joined(coordinator: Coordinator, disk: FaultyDisk) -> None:
    producer = coordinator.init()
    disk.fail_next_write()
    assert error_of(coordinator.add, producer, ("t", 0)) is Error.NOT_COORDINATOR
    assert coordinator.state() is State.EMPTY
    coordinator.add(producer, ("t", 0))


# Verification


def test_an_append_to_a_partition_that_was_not_added_is_refused(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    assert error_of(coordinator.produce, producer, "t", b"x") is Error.TRANSACTION_ABORTABLE
    coordinator.add(producer, ("t", 0))
    coordinator.produce(producer, "t", b"x")
    assert error_of(coordinator.produce, producer, "t", b"x", index=1) is Error.TRANSACTION_ABORTABLE


def test_a_late_append_cannot_reopen_an_ended_transaction(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    coordinator.add(producer, ("t", 0))
    coordinator.end(producer, committed=False)
    assert error_of(coordinator.produce, producer, "t", b"late") is Error.TRANSACTION_ABORTABLE


def test_old_clients_are_told_in_words_they_know(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    verify = coordinator.transactions.verify
    refused = error_of(verify, "id", *producer, "t", 0, joins=False, knows_abortable=False)
    assert refused is Error.INVALID_TXN_STATE


def test_an_append_of_a_fenced_or_foreign_producer_is_refused(coordinator: Coordinator) -> None:
    zombie = coordinator.init()
    coordinator.init()
    for joins in (False, True):
        assert error_of(coordinator.produce, zombie, "t", b"x", joins=joins) is Error.INVALID_PRODUCER_EPOCH
        foreign = ProducerIdentity(zombie.producer_id + 1, 0)
        refused = error_of(coordinator.produce, foreign, "t", b"x", joins=joins)
        assert refused is Error.INVALID_PRODUCER_ID_MAPPING
    assert coordinator.state() is State.EMPTY


def test_producing_to_a_partition_makes_it_part_of_the_transaction(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    coordinator.produce(producer, "t", b"x", joins=True)
    coordinator.produce(producer, "t", b"y", index=1, joins=True)
    assert coordinator.get().partitions == {("t", 0), ("t", 1)}
    assert coordinator.get().client_version == 2


def test_verification_can_be_switched_off(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    coordinator.cluster.set_broker_configs("", {"transaction.partition.verification.enable": "false"})
    coordinator.produce(producer, "t", b"x")


@pytest.mark.parametrize("added", [True, False])
def test_partitions_can_be_checked_without_adding_them(coordinator: Coordinator, added: bool) -> None:
    producer = coordinator.init()
    if added:
        coordinator.add(producer, ("t", 0))
    outcome = coordinator.transactions.check_partitions("id", producer, [("t", 0), ("t", 1)])
    assert outcome == {
        ("t", 0): Error.NONE if added else Error.TRANSACTION_ABORTABLE,
        ("t", 1): Error.TRANSACTION_ABORTABLE,
    }
