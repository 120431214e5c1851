"""InitProducerId with a transactional id: identities, fencing, going on after errors, used-up epochs."""

from pathlib import Path

import pytest

from millrace.errors import Error
from millrace.testing.disk import FaultyDisk
from millrace.txn.transaction_state import EPOCH_PER_TRANSACTION, MAX_EPOCH, ProducerIdentity, State

from .coordinator import Coordinator, error_of


def test_the_first_producer_of_an_id_starts_in_epoch_0(coordinator: Coordinator) -> None:
    first, second = coordinator.init("a"), coordinator.init("b")
    assert first.producer_epoch == second.producer_epoch == 0
    assert first.producer_id != second.producer_id
    assert coordinator.state("a") is State.EMPTY


def test_the_next_producer_of_an_id_gets_the_next_epoch(coordinator: Coordinator) -> None:
    first, second = coordinator.init(), coordinator.init()
    assert second == (first.producer_id, first.producer_epoch + 1)
    assert error_of(coordinator.add, first, ("t", 0)) is Error.PRODUCER_FENCED
    coordinator.add(second, ("t", 0))


def test_identities_survive_a_restart(coordinator: Coordinator) -> None:
    first = coordinator.init()
    coordinator.restart()
    assert coordinator.get().producer == first
    assert coordinator.init() == (first.producer_id, 1)


def test_a_new_producer_aborts_what_the_old_one_left_open(coordinator: Coordinator) -> None:
    old = coordinator.init()
    coordinator.add(old, ("t", 0))
    coordinator.produce(old, "t", b"orphan")
    new = coordinator.init()
    assert coordinator.markers("t") == [(old.producer_id, 1, False)]
    assert not coordinator.is_open("t")
    assert new == (old.producer_id, 2)
    assert error_of(coordinator.end, old) is Error.PRODUCER_FENCED
    assert error_of(coordinator.produce, old, "t", b"late", sequence=1) is Error.INVALID_PRODUCER_EPOCH


def test_a_new_producer_waits_while_the_end_of_the_old_transaction_cannot_be_written(
    coordinator: Coordinator, disk: FaultyDisk
) -> None:
    old = coordinator.init()
    coordinator.add(old, ("t", 0))
    coordinator.produce(old, "t", b"orphan")
    disk.fill(room=200)
    assert error_of(coordinator.init) is Error.CONCURRENT_TRANSACTIONS
    assert error_of(coordinator.init) is Error.CONCURRENT_TRANSACTIONS
    disk.free()
    coordinator.timers.advance(1000)
    assert coordinator.state() is State.COMPLETE_ABORT
    assert coordinator.init().producer_epoch == 2


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_must_be_one_that_the_broker_allows(coordinator: Coordinator, timeout_ms: int) -> None:
    assert error_of(coordinator.init, timeout_ms=timeout_ms) is Error.INVALID_TRANSACTION_TIMEOUT
    coordinator.init(timeout_ms=900_000)


def test_an_id_must_not_be_empty(coordinator: Coordinator) -> None:
    assert error_of(coordinator.init, "") is Error.INVALID_REQUEST


def test_an_unwritable_state_log_gives_no_identity(coordinator: Coordinator, disk: FaultyDisk) -> None:
    coordinator.init()
    disk.fail_next_write()
    assert error_of(coordinator.init) is Error.NOT_COORDINATOR
    assert coordinator.init().producer_epoch == 1


# A producer that names the identity it had (KIP-360)


def test_a_producer_goes_on_with_its_next_epoch(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    assert coordinator.init(expected=producer) == (producer.producer_id, 1)


def test_a_repeated_request_gets_the_same_epoch_again(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    given = coordinator.init(expected=producer)
    assert coordinator.init(expected=producer) == given


def test_a_producer_whose_id_was_forgotten_starts_afresh(coordinator: Coordinator) -> None:
    assert coordinator.init(expected=ProducerIdentity(77, 5)).producer_epoch == 0


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_producer_that_was_replaced_is_fenced(coordinator: Coordinator, epoch: int) -> None:
    producer = coordinator.init()
    coordinator.init()
    coordinator.init()
    expected = ProducerIdentity(producer.producer_id, epoch)
    assert error_of(coordinator.init, expected=expected) is Error.PRODUCER_FENCED


def test_a_foreign_producer_id_is_fenced(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    foreign = ProducerIdentity(producer.producer_id + 1, 0)
    assert error_of(coordinator.init, expected=foreign) is Error.PRODUCER_FENCED


def test_a_producer_that_goes_on_aborts_its_own_open_transaction(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    coordinator.add(producer, ("t", 0))
    coordinator.produce(producer, "t", b"lost")
    assert coordinator.init(expected=producer) == (producer.producer_id, 1)
    assert coordinator.committed("t") == [] and not coordinator.is_open("t")
    assert coordinator.init(expected=producer) == (producer.producer_id, 1)


def test_a_replaced_producer_cannot_abort_the_transaction_of_its_successor(coordinator: Coordinator) -> None:
    zombie = coordinator.init()
    producer = coordinator.init()
    coordinator.add(producer, ("t", 0))
    assert error_of(coordinator.init, expected=zombie) is Error.PRODUCER_FENCED
    assert coordinator.state() is State.ONGOING


# Epochs that run out


def test_a_producer_id_without_epochs_is_replaced(coordinator: Coordinator) -> None:
    worn = coordinator.use_up_epochs()
    fresh = coordinator.init()
    assert fresh.producer_id != worn.producer_id and fresh.producer_epoch == 0


def test_a_producer_that_goes_on_without_epochs_gets_a_new_id_and_may_ask_again(
    coordinator: Coordinator,
) -> None:
    worn = coordinator.use_up_epochs()
    fresh = coordinator.init(expected=worn)
    assert fresh.producer_id != worn.producer_id and fresh.producer_epoch == 0
    assert coordinator.init(expected=worn) == fresh


def test_the_last_epoch_fences_a_producer_and_is_never_assigned(coordinator: Coordinator) -> None:
    worn = coordinator.use_up_epochs()
    coordinator.add(worn, ("t", 0))
    coordinator.produce(worn, "t", b"lost")
    fresh = coordinator.init(expected=worn)
    assert coordinator.markers("t") == [(worn.producer_id, MAX_EPOCH, False)]
    assert fresh.producer_id != worn.producer_id and fresh.producer_epoch == 0


def test_a_transaction_of_the_last_epoch_moves_its_producer_to_a_new_id(coordinator: Coordinator) -> None:
    worn = coordinator.use_up_epochs()
    coordinator.produce(worn, "t", b"x", joins=True)
    fresh = coordinator.end(worn, new=True)
    assert fresh.producer_id != worn.producer_id and fresh.producer_epoch == 0
    assert coordinator.committed("t") == [b"x"]
    assert coordinator.markers("t") == [(worn.producer_id, MAX_EPOCH, True)]
    assert coordinator.end(worn, new=True) == fresh
    assert error_of(coordinator.end, worn, committed=False, new=True) is Error.INVALID_TXN_STATE
    coordinator.produce(fresh, "t", b"y", joins=True)
    assert error_of(coordinator.end, worn, new=True) is Error.INVALID_PRODUCER_ID_MAPPING


def test_the_new_id_survives_a_restart_between_decision_and_completion(
    coordinator: Coordinator, disk: FaultyDisk
) -> None:
    worn = coordinator.use_up_epochs()
    coordinator.produce(worn, "t", b"x", joins=True)
    disk.fill(room=200)
    fresh = coordinator.end(worn, new=True)
    assert coordinator.state() is State.PREPARE_COMMIT
    disk.free()
    coordinator.restart()
    assert coordinator.get().producer == fresh
    assert coordinator.get().client_version == EPOCH_PER_TRANSACTION


def test_new_producer_ids_need_a_disk(tmp_path: Path, disk: FaultyDisk) -> None:
    coordinator = Coordinator(tmp_path / "other", disk)
    coordinator.init("first")
    coordinator.transactions._producer_ids._end = coordinator.transactions._producer_ids._next
    disk.fail_next_write()
    assert error_of(coordinator.init, "second") is Error.COORDINATOR_NOT_AVAILABLE
    coordinator.node.kill()


def test_the_ids_of_loaded_transactions_are_not_given_again(coordinator: Coordinator) -> None:
    """No log of records knows a producer that has not written anything yet."""
    producer = coordinator.init()
    coordinator.node.kill()
    (coordinator.node.directories[0] / "producer-ids.json").unlink()
    coordinator.open()
    assert coordinator.init("another").producer_id > producer.producer_id
