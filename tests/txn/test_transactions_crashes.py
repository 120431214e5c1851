"""A broker that dies at any write of a transaction comes back with all of it or nothing."""

import itertools

import pytest

from millrace.coordinator.records import encode_record
from millrace.txn.transaction_state import ProducerIdentity, State
from millrace.wire.messages.transaction_records import TransactionLogValue
from millrace.wire.records import Record, build_batch

from .coordinator import Coordinator, Killed, MortalDisk

# Prepare, a marker for each of two partitions, complete.
WRITES_OF_AN_END = 4

OUTCOMES = pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
PROTOCOLS = pytest.mark.parametrize("new", [False, True], ids=["old protocol", "epoch per transaction"])


def begin(coordinator: Coordinator, producer: ProducerIdentity) -> None:
    coordinator.add(producer, ("t", 0), ("t", 1))
    for index in (0, 1):
        coordinator.produce(producer, "t", b"x", index=index)


@PROTOCOLS
@OUTCOMES
@pytest.mark.parametrize("survived", range(WRITES_OF_AN_END + 1))
def test_a_decided_end_is_finished_after_a_restart(
    coordinator: Coordinator, disk: MortalDisk, survived: int, committed: bool, new: bool
) -> None:
    producer = coordinator.init()
    begin(coordinator, producer)
    disk.die_after(survived)
    if survived < WRITES_OF_AN_END:
        with pytest.raises(Killed):
            coordinator.end(producer, committed=committed, new=new)
    else:
        coordinator.end(producer, committed=committed, new=new)
    disk.die_after(None)
    coordinator.restart()
    if survived == 0:
        assert coordinator.state() is State.ONGOING and coordinator.is_open("t")
    # The answer was lost, so the producer asks again.
    following = coordinator.end(producer, committed=committed, new=new)
    assert following == (producer.producer_id, 1 if new else 0)
    assert coordinator.state() is (State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT)
    for index in (0, 1):
        assert coordinator.committed("t", index) == ([b"x"] if committed else [])
        assert not coordinator.is_open("t", index)


@PROTOCOLS
def test_a_broker_that_dies_again_and_again_while_it_finishes_still_finishes(
    coordinator: Coordinator, disk: MortalDisk, new: bool
) -> None:
    producer = coordinator.init()
    begin(coordinator, producer)
    disk.die_after(1)
    with pytest.raises(Killed):
        coordinator.end(producer, new=new)
    for survived in itertools.count():
        disk.die_after(survived)
        try:
            coordinator.restart()
            break
        except Killed:
            continue
    disk.die_after(None)
    coordinator.restart()
    assert coordinator.state() is State.COMPLETE_COMMIT
    for index in (0, 1):
        assert coordinator.committed("t", index) == [b"x"]
        assert not coordinator.is_open("t", index)


@pytest.mark.parametrize("survived", range(WRITES_OF_AN_END + 2))
def test_fencing_is_finished_after_a_restart(
    coordinator: Coordinator, disk: MortalDisk, survived: int
) -> None:
    zombie = coordinator.init()
    begin(coordinator, zombie)
    disk.die_after(survived)
    try:
        coordinator.init()
    except Killed:
        assert survived < WRITES_OF_AN_END + 1
    disk.die_after(None)
    coordinator.restart()
    producer = coordinator.init()
    assert producer.producer_epoch > zombie.producer_epoch
    for index in (0, 1):
        assert coordinator.committed("t", index) == []
        assert not coordinator.is_open("t", index)


def test_an_open_transaction_goes_on_after_a_restart(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    begin(coordinator, producer)
    coordinator.restart()
    assert coordinator.state() is State.ONGOING
    coordinator.produce(producer, "t", b"y", sequence=1)
    coordinator.end(producer)
    assert coordinator.committed("t") == [b"x", b"y"]


def test_an_open_transaction_times_out_after_a_restart(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    begin(coordinator, producer)
    coordinator.restart()
    coordinator.timers.advance(80_000)
    assert coordinator.state() is State.COMPLETE_ABORT
    assert not coordinator.is_open("t")


def test_a_topic_deleted_before_the_restart_does_not_hold_up_the_end(
    coordinator: Coordinator, disk: MortalDisk
) -> None:
    producer = coordinator.init()
    begin(coordinator, producer)
    disk.die_after(1)
    with pytest.raises(Killed):
        coordinator.end(producer)
    disk.die_after(None)
    coordinator.cluster.delete_topic(coordinator.cluster.image.topic("t"))
    coordinator.restart()
    assert coordinator.state() is State.COMPLETE_COMMIT


def test_a_record_with_an_unknown_status_costs_only_itself(
    coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator.init("sound")
    coordinator.init("odd")
    runtime = coordinator.transactions.runtime
    record = coordinator.get("odd").record()
    assert isinstance(record.value, TransactionLogValue)
    record.value.transaction_status = 77
    key, value = encode_record(record)
    partition = coordinator.partition("__transaction_state", runtime.partition_of("odd"))
    partition.append_as_leader(memoryview(build_batch([Record(0, 0, key, value)])))
    coordinator.restart()
    assert coordinator.state("sound") is State.EMPTY
    assert coordinator.init("odd").producer_epoch == 1
    assert "unknown status 77" in caplog.text
