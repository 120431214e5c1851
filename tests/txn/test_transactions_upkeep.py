"""Transactions that take too long, unused ids, and records of the state log."""

from pathlib import Path

import pytest

from millrace.coordinator.records import decode_record, encode_record
from millrace.errors import Error
from millrace.testing.disk import FaultyDisk
from millrace.txn.shard import SCHEMAS
from millrace.txn.transaction_state import State, Transaction
from millrace.wire.messages.transaction_records import TransactionLogKey, TransactionLogValue

from .coordinator import TIMEOUT_MS, Coordinator, error_of

CHECK_MS = 10_000
DAY_MS = 24 * 60 * 60 * 1000


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(
    coordinator: Coordinator,
) -> None:
    producer = coordinator.init()
    coordinator.add(producer, ("t", 0))
    coordinator.produce(producer, "t", b"slow")
    coordinator.timers.advance(TIMEOUT_MS)
    assert coordinator.state() is State.ONGOING
    coordinator.timers.advance(CHECK_MS)
    assert coordinator.state() is State.COMPLETE_ABORT
    assert coordinator.markers("t") == [(producer.producer_id, 1, False)]
    assert error_of(coordinator.end, producer) is Error.PRODUCER_FENCED
    assert error_of(coordinator.end, producer, new=True) is Error.INVALID_TXN_STATE
    assert error_of(coordinator.produce, producer, "t", b"late", sequence=1) is Error.INVALID_PRODUCER_EPOCH


def test_a_timed_out_producer_may_go_on_with_a_new_epoch(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    coordinator.produce(producer, "t", b"slow", joins=True)
    coordinator.timers.advance(TIMEOUT_MS + CHECK_MS)
    following = coordinator.end(producer, committed=False, new=True)
    assert following == (producer.producer_id, 1)
    coordinator.produce(following, "t", b"fast", joins=True)
    coordinator.end(following, new=True)
    assert coordinator.committed("t") == [b"fast"]


def test_only_open_transactions_time_out(coordinator: Coordinator) -> None:
    producer = coordinator.init()
    coordinator.add(producer, ("t", 0))
    coordinator.end(producer)
    coordinator.timers.advance(10 * TIMEOUT_MS)
    assert coordinator.state() is State.COMPLETE_COMMIT
    assert coordinator.get().producer == producer


def test_an_abort_that_fails_is_tried_again(coordinator: Coordinator, disk: FaultyDisk) -> None:
    producer = coordinator.init()
    coordinator.add(producer, ("t", 0))
    coordinator.timers.advance(TIMEOUT_MS)
    disk.fail_next_write()
    coordinator.timers.advance(CHECK_MS)
    assert coordinator.state() is State.ONGOING
    coordinator.timers.advance(CHECK_MS)
    assert coordinator.state() is State.COMPLETE_ABORT


def test_unused_ids_are_forgotten(coordinator: Coordinator) -> None:
    for transactional_id in ("empty", "committed", "open"):
        producer = coordinator.init(transactional_id, timeout_ms=900_000)
        if transactional_id != "empty":
            coordinator.add(producer, ("t", 0), transactional_id=transactional_id)
        if transactional_id == "committed":
            coordinator.end(producer, transactional_id=transactional_id)
    coordinator.timers.advance(6 * DAY_MS)
    assert {transaction.transactional_id for transaction in coordinator.transactions} == {
        "empty",
        "committed",
        "open",
    }
    used = coordinator.init("committed")
    coordinator.timers.advance(2 * DAY_MS)
    assert [transaction.transactional_id for transaction in coordinator.transactions] == ["committed"]
    coordinator.restart()
    assert [transaction.producer for transaction in coordinator.transactions] == [used]
    assert coordinator.init("empty").producer_epoch == 0


def test_forgetting_that_fails_is_tried_again(coordinator: Coordinator, disk: FaultyDisk) -> None:
    coordinator.init()
    coordinator.clock.advance(7 * DAY_MS)
    disk.fail_next_write()
    coordinator.transactions.remove_expired()
    assert coordinator.transactions.find("id") is not None
    coordinator.transactions.remove_expired()
    assert coordinator.transactions.find("id") is None


def test_intervals_and_limits_are_configured(tmp_path: Path) -> None:
    coordinator = Coordinator(
        tmp_path / "other",
        properties={
            "transaction.max.timeout.ms": "500",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
            "transactional.id.expiration.ms": "2000",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
        },
    )
    assert error_of(coordinator.init, timeout_ms=501) is Error.INVALID_TRANSACTION_TIMEOUT
    coordinator.create_topic("t")
    coordinator.add(coordinator.init(timeout_ms=500), ("t", 0))
    coordinator.timers.advance(600)
    assert coordinator.state() is State.COMPLETE_ABORT
    coordinator.timers.advance(3000)
    assert coordinator.transactions.find("id") is None
    coordinator.node.kill()


def test_the_state_topic_is_made_as_kafka_makes_it(coordinator: Coordinator) -> None:
    coordinator.init()
    topic = coordinator.cluster.image.topic("__transaction_state")
    assert topic.partitions == 3
    assert topic.configs["cleanup.policy"] == "compact"


@pytest.mark.parametrize("state", list(State))
def test_a_state_comes_back_from_its_record(state: State) -> None:
    transaction = Transaction(
        transactional_id="id",
        producer_id=7,
        timeout_ms=TIMEOUT_MS,
        updated_ms=20,
        producer_epoch=3,
        previous_producer_id=6,
        next_producer_id=8,
        state=state,
        partitions=frozenset() if state is State.EMPTY else frozenset({("t", 1), ("t", 0), ("u", 2)}),
        started_ms=10,
        client_version=2,
    )
    record = transaction.record()
    decoded = decode_record(SCHEMAS, *encode_record(record))
    assert decoded is not None
    assert isinstance(decoded.key, TransactionLogKey) and isinstance(decoded.value, TransactionLogValue)
    assert Transaction.from_record(decoded.key, decoded.value) == transaction
    assert (decoded.value.transaction_partitions is None) == (state is State.EMPTY)


def test_states_are_named_as_tools_show_them() -> None:
    assert [state.label for state in State] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]
