"""EndTxn: commits, aborts, repetitions and what is out of place, in both protocols."""

import pytest

from millrace.errors import Error
from millrace.testing.disk import FaultyDisk
from millrace.txn.transaction_state import ProducerIdentity, State

from .coordinator import Coordinator, MortalDisk, error_of

OUTCOMES = pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
PROTOCOLS = pytest.mark.parametrize("new", [False, True], ids=["old protocol", "epoch per transaction"])


def begin(coordinator: Coordinator, producer: ProducerIdentity, value: bytes = b"x") -> None:
    coordinator.add(producer, ("t", 0), ("t", 1))
    coordinator.produce(producer, "t", value)
    coordinator.produce(producer, "t", value, index=1)


@PROTOCOLS
@OUTCOMES
def test_every_partition_gets_its_marker(coordinator: Coordinator, committed: bool, new: bool) -> None:
    producer = coordinator.init()
    begin(coordinator, producer)
    assert coordinator.is_open("t")
    coordinator.end(producer, committed=committed, new=new)
    for index in (0, 1):
        assert coordinator.markers("t", index) == [(producer.producer_id, 1 if new else 0, committed)]
        assert coordinator.committed("t", index) == ([b"x"] if committed else [])
        assert not coordinator.is_open("t", index)
    assert coordinator.state() is (State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT)
    assert coordinator.get().partitions == frozenset()


def test_in_the_old_protocol_the_epoch_stays(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    for number in range(3):
        coordinator.add(producer, ("t", 0))
        coordinator.produce(producer, "t", b"%d" % number, sequence=number)
        assert coordinator.end(producer) == producer
    assert coordinator.committed("t") == [b"0", b"1", b"2"]


def test_in_the_new_protocol_every_transaction_has_its_own_epoch(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    for epoch in range(3):
        assert producer.producer_epoch == epoch
        coordinator.produce(producer, "t", b"%d" % epoch, joins=True)
        producer = coordinator.end(producer, new=True)
    assert coordinator.committed("t") == [b"0", b"1", b"2"]


@OUTCOMES
def test_a_repeated_end_is_answered_and_changes_nothing(coordinator: Coordinator, committed: bool) -> None:
    producer = coordinator.init()
    begin(coordinator, producer)
    coordinator.end(producer, committed=committed)
    assert coordinator.end(producer, committed=committed) == producer
    assert error_of(coordinator.end, producer, committed=not committed) is Error.INVALID_TXN_STATE
    assert len(coordinator.markers("t")) == 1


@OUTCOMES
def test_a_repeated_end_gets_the_epoch_that_its_answer_had(coordinator: Coordinator, committed: bool) -> None:
    producer = coordinator.init()
    begin(coordinator, producer)
    following = coordinator.end(producer, committed=committed, new=True)
    assert following == (producer.producer_id, 1)
    assert coordinator.end(producer, committed=committed, new=True) == following
    assert error_of(coordinator.end, producer, committed=not committed, new=True) is Error.INVALID_TXN_STATE
    coordinator.restart()
    assert coordinator.end(producer, committed=committed, new=True) == following
    assert len(coordinator.markers("t")) == 1


@OUTCOMES
def test_without_a_transaction_there_is_nothing_to_end(coordinator: Coordinator, committed: bool) -> None:
    producer = coordinator.init()
    assert error_of(coordinator.end, producer, committed=committed) is Error.INVALID_TXN_STATE


@pytest.mark.parametrize("before", [None, True, False], ids=["empty", "committed", "aborted"])
def test_an_abort_without_a_transaction_takes_a_new_epoch(
    coordinator: Coordinator, before: bool | None
) -> None:
    producer = coordinator.init()
    if before is not None:
        begin(coordinator, producer)
        producer = coordinator.end(producer, committed=before, new=True)
    assert error_of(coordinator.end, producer, new=True) is Error.INVALID_TXN_STATE
    following = coordinator.end(producer, committed=False, new=True)
    assert following == (producer.producer_id, producer.producer_epoch + 1)
    assert coordinator.state() is State.COMPLETE_ABORT
    assert coordinator.get().started_ms == coordinator.clock.now_ms()


@PROTOCOLS
def test_only_the_producer_that_holds_the_id_may_end(coordinator: Coordinator, new: bool) -> None:
    zombie = coordinator.init()
    producer = coordinator.init()
    begin(coordinator, producer)
    foreign = ProducerIdentity(producer.producer_id + 1, producer.producer_epoch)
    newer = ProducerIdentity(producer.producer_id, producer.producer_epoch + 1)
    assert error_of(coordinator.end, zombie, new=new) is Error.PRODUCER_FENCED
    assert error_of(coordinator.end, newer, new=new) is Error.PRODUCER_FENCED
    assert error_of(coordinator.end, foreign, new=new) is Error.INVALID_PRODUCER_ID_MAPPING
    unknown = error_of(coordinator.end, producer, new=new, transactional_id="unknown")
    assert unknown is Error.INVALID_PRODUCER_ID_MAPPING
    assert error_of(coordinator.end, producer, new=new, transactional_id="") is Error.INVALID_REQUEST
    assert coordinator.state() is State.ONGOING


def test_an_epoch_before_an_empty_state_is_fenced(coordinator: Coordinator) -> None:
    zombie = coordinator.init()
    coordinator.init()
    for committed in (True, False):
        assert error_of(coordinator.end, zombie, committed=committed, new=True) is Error.PRODUCER_FENCED


@PROTOCOLS
def test_an_end_that_cannot_be_written_down_may_be_tried_again(
    coordinator: Coordinator, disk: FaultyDisk, new: bool
) -> None:
    producer = coordinator.init()
    begin(coordinator, producer)
    disk.fail_next_write()
    assert error_of(coordinator.end, producer, new=new) is Error.NOT_COORDINATOR
    assert coordinator.state() is State.ONGOING
    coordinator.end(producer, new=new)
    assert coordinator.committed("t") == [b"x"]


@PROTOCOLS
def test_markers_that_cannot_be_written_are_written_later(
    coordinator: Coordinator, disk: FaultyDisk, new: bool
) -> None:
    producer = coordinator.init()
    begin(coordinator, producer)
    disk.fill(room=200)
    coordinator.end(producer, new=new)
    assert coordinator.state() is State.PREPARE_COMMIT and coordinator.is_open("t", 1)
    assert error_of(coordinator.end, producer, new=new) is Error.CONCURRENT_TRANSACTIONS
    wrong = error_of(coordinator.end, producer, committed=False, new=new)
    assert wrong is Error.INVALID_TXN_STATE
    coordinator.timers.advance(5000)
    assert coordinator.state() is State.PREPARE_COMMIT
    disk.free()
    coordinator.timers.advance(1000)
    assert coordinator.state() is State.COMPLETE_COMMIT
    for index in (0, 1):
        assert coordinator.committed("t", index) == [b"x"]
        assert len(coordinator.markers("t", index)) == 1


@pytest.mark.parametrize("written", range(1, 4))
def test_each_marker_is_written_once_whichever_write_fails(
    coordinator: Coordinator, disk: MortalDisk, written: int
) -> None:
    producer = coordinator.init()
    begin(coordinator, producer)
    disk.fail_after(written)
    coordinator.end(producer)
    assert coordinator.state() is State.PREPARE_COMMIT
    coordinator.timers.advance(1000)
    assert coordinator.state() is State.COMPLETE_COMMIT
    assert [len(coordinator.markers("t", index)) for index in (0, 1)] == [1, 1]


@PROTOCOLS
def test_a_deleted_topic_does_not_hold_up_the_end(coordinator: Coordinator, new: bool) -> None:
    producer = coordinator.init()
    begin(coordinator, producer)
    coordinator.add(producer, ("u", 0))
    coordinator.cluster.delete_topic(coordinator.cluster.image.topic("t"))
    coordinator.end(producer, new=new)
    assert coordinator.state() is State.COMPLETE_COMMIT
    assert len(coordinator.markers("u")) == 1


def test_transactions_of_different_ids_do_not_meet(coordinator: Coordinator) -> None:
    one, other = coordinator.init("one"), coordinator.init("other")
    for transactional_id, producer in (("one", one), ("other", other)):
        coordinator.add(producer, ("t", 0), transactional_id=transactional_id)
        coordinator.produce(producer, "t", transactional_id.encode(), transactional_id=transactional_id)
    coordinator.end(other, transactional_id="other")
    assert coordinator.is_open("t")
    coordinator.end(one, committed=False, transactional_id="one")
    assert coordinator.committed("t") == [b"other"]
