"""Transactions whose state and partitions have followers, and coordinators that come and go."""

import asyncio

import pytest

from millrace.errors import Error
from millrace.replication.partition import Partition
from millrace.txn.coordinator import TRANSACTION_TOPIC
from millrace.txn.markers import RETRY_MS
from millrace.txn.transaction_state import ProducerIdentity, State

from ..coordinator.replicas import FOLLOWER, ME, catch_up, replicate
from .coordinator import Coordinator, error_of


def state_log(coordinator: Coordinator) -> list[Partition]:
    return coordinator.cluster.partitions.of_topic(TRANSACTION_TOPIC)


def begin(coordinator: Coordinator) -> ProducerIdentity:
    producer = coordinator.init()
    coordinator.add(producer, ("t", 0), ("t", 1))
    for index in (0, 1):
        coordinator.produce(producer, "t", b"x", index=index)
    return producer


def resign(coordinator: Coordinator) -> None:
    """Another broker coordinates everything from now on."""
    for partition in state_log(coordinator):
        coordinator.transactions.runtime.resigned(partition.index)
        partition.become_follower(partition.leader_epoch + 1, FOLLOWER)


def elect(coordinator: Coordinator, isr: tuple[int, ...] = (ME,)) -> None:
    for partition in state_log(coordinator):
        epoch = partition.leader_epoch + 1
        partition.become_leader(epoch, (ME, FOLLOWER), isr, node_id=ME)
        coordinator.transactions.runtime.elected(partition.index, epoch)
    asyncio.run(coordinator.transactions.runtime.load())


def follow(partition: Partition, coordinator: Coordinator) -> None:
    """Another broker leads a partition of the transaction."""
    coordinator.cluster.partitions.follow(partition)
    partition.become_follower(partition.leader_epoch + 1, FOLLOWER)


def lead(partition: Partition, coordinator: Coordinator) -> None:
    partition.become_leader(partition.leader_epoch + 1, (ME,), (ME,), node_id=ME)
    coordinator.cluster.partitions.lead(partition)


def test_markers_wait_until_the_decision_is_committed(coordinator: Coordinator) -> None:
    producer = begin(coordinator)
    replicate(state_log(coordinator))
    coordinator.end(producer)
    assert coordinator.state() is State.PREPARE_COMMIT
    assert coordinator.markers("t") == []
    assert error_of(coordinator.add, producer, ("u", 0)) is Error.CONCURRENT_TRANSACTIONS
    catch_up(state_log(coordinator))
    assert coordinator.markers("t") == coordinator.markers("t", 1) == [(*producer, True)]
    assert coordinator.state() is State.COMPLETE_COMMIT


def test_completion_waits_until_every_marker_is_committed(coordinator: Coordinator) -> None:
    producer = begin(coordinator)
    partition = coordinator.partition("t", 1)
    replicate([partition])
    coordinator.end(producer)
    assert len(coordinator.markers("t", 1)) == 1
    assert coordinator.state() is State.PREPARE_COMMIT
    catch_up([partition])
    assert coordinator.state() is State.COMPLETE_COMMIT


def test_a_decision_that_another_coordinator_takes_over_writes_no_markers_here(
    coordinator: Coordinator,
) -> None:
    producer = begin(coordinator)
    replicate(state_log(coordinator))
    coordinator.end(producer)
    resign(coordinator)
    assert coordinator.markers("t") == []
    assert error_of(coordinator.get) is Error.NOT_COORDINATOR


def test_a_coordinator_that_takes_over_completes_what_is_decided_and_committed(
    coordinator: Coordinator,
) -> None:
    producer = begin(coordinator)
    replicate(state_log(coordinator))
    coordinator.end(producer)
    resign(coordinator)
    elect(coordinator, isr=(ME, FOLLOWER))
    assert coordinator.state() is State.PREPARE_COMMIT
    assert coordinator.markers("t") == [], "the next coordinator may not know of the decision"
    catch_up(state_log(coordinator))
    assert coordinator.state() is State.COMPLETE_COMMIT
    assert coordinator.committed("t") == coordinator.committed("t", 1) == [b"x"]


def test_a_partition_without_a_leader_here_gets_its_marker_later(coordinator: Coordinator) -> None:
    producer = begin(coordinator)
    partition = coordinator.partition("t", 1)
    follow(partition, coordinator)
    coordinator.end(producer)
    assert coordinator.markers("t") == [(*producer, True)]
    assert coordinator.state() is State.PREPARE_COMMIT
    coordinator.timers.advance(RETRY_MS)
    assert coordinator.state() is State.PREPARE_COMMIT, "a marker is missing"
    lead(partition, coordinator)
    coordinator.timers.advance(RETRY_MS)
    assert coordinator.state() is State.COMPLETE_COMMIT
    assert coordinator.markers("t") == coordinator.markers("t", 1) == [(*producer, True)]


def test_a_deleted_topic_needs_no_marker(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    coordinator.add(producer, ("t", 0), ("u", 0))
    coordinator.cluster.delete_topic(coordinator.cluster.topics["u"])
    coordinator.end(producer)
    assert coordinator.state() is State.COMPLETE_COMMIT


def test_a_coordinator_that_resigns_stops_its_retries(coordinator: Coordinator) -> None:
    producer = begin(coordinator)
    partition = coordinator.partition("t", 1)
    follow(partition, coordinator)
    pending = len(coordinator.timers)
    coordinator.end(producer)
    assert len(coordinator.timers) == pending + 1
    resign(coordinator)
    assert len(coordinator.timers) == pending
    lead(partition, coordinator)
    coordinator.timers.advance(RETRY_MS)
    assert coordinator.markers("t", 1) == []
    elect(coordinator)
    assert coordinator.markers("t", 1) == [(*producer, True)]
    assert coordinator.state() is State.COMPLETE_COMMIT


def test_a_marker_confirmed_after_the_coordinator_resigned_changes_nothing(coordinator: Coordinator) -> None:
    producer = begin(coordinator)
    partition = coordinator.partition("t", 1)
    replicate([partition])
    coordinator.end(producer)
    resign(coordinator)
    ends = [found.log.log_end_offset for found in state_log(coordinator)]
    catch_up([partition])
    assert [found.log.log_end_offset for found in state_log(coordinator)] == ends


def test_a_marker_confirmed_after_a_new_election_completes_nothing(coordinator: Coordinator) -> None:
    producer = begin(coordinator)
    partition = coordinator.partition("t", 1)
    replicate([partition])
    coordinator.end(producer)
    first_marker_end = partition.log.log_end_offset
    resign(coordinator)
    elect(coordinator)
    assert partition.log.log_end_offset > first_marker_end, "the new coordinator writes its own marker"
    partition.record_fetch(FOLLOWER, first_marker_end)
    assert coordinator.state() is State.PREPARE_COMMIT
    catch_up([partition])
    assert coordinator.state() is State.COMPLETE_COMMIT


def test_fencing_a_producer_answers_when_the_abort_is_complete(coordinator: Coordinator) -> None:
    begin(coordinator)
    replicate(state_log(coordinator))
    assert error_of(coordinator.init) is Error.CONCURRENT_TRANSACTIONS
    catch_up(state_log(coordinator))
    assert coordinator.state() is State.COMPLETE_ABORT
    assert coordinator.init().producer_epoch == 2


def test_a_first_append_waits_until_its_partition_is_known_to_be_part_of_the_transaction(
    coordinator: Coordinator,
) -> None:
    producer = coordinator.init()
    replicate(state_log(coordinator))
    verified = coordinator.transactions.verify("id", *producer, "t", 0, joins=True)
    assert not verified.resolved
    catch_up(state_log(coordinator))
    assert verified.result() is None


@pytest.mark.parametrize("takes_over", [False, True])
def test_a_repeated_request_of_a_producer_is_recognised_by_the_coordinator_that_saw_it(
    coordinator: Coordinator, takes_over: bool
) -> None:
    first = coordinator.init()
    second = coordinator.init(expected=first)
    if takes_over:
        # No record keeps the epoch before the present one.
        resign(coordinator)
        elect(coordinator)
        assert error_of(coordinator.init, expected=first) is Error.PRODUCER_FENCED
    else:
        assert coordinator.init(expected=first) == second
