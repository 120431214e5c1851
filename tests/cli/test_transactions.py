"""`millrace transactions`, with transactions in every state."""

import time
from collections.abc import Iterator

import pytest

from millrace.testing import Broker

from ..transaction_writer import TransactionWriter
from .conftest import Run


@pytest.fixture
def writer(run: Run, broker: Broker, topic: str) -> Iterator[TransactionWriter]:
    """A transaction with a record in partition 1 of a new topic of two partitions."""
    run("topics", "--create", "--topic", topic, "--partitions", 2)
    writer = TransactionWriter(broker.bootstrap, f"writer-of-{topic}")
    writer.write(topic, 1)
    yield writer


def rows(table: str) -> list[list[str]]:
    """The cells of a table in Kafka's layout, without its header."""
    return [[cell.strip() for cell in line.split("\t")[:-1]] for line in table.splitlines()[1:]]


def only(rows: list[list[str]], first: str) -> list[str]:
    (row,) = [row for row in rows if row[0] == first]
    return row


def test_transactions_are_listed_with_their_states(run: Run, writer: TransactionWriter) -> None:
    name = writer.transactional_id
    output = run("transactions", "list").stdout
    assert output.splitlines()[0].rstrip().endswith("Coordinator\tProducerId\tTransactionState")
    assert only(rows(output), name)[1] == "1"
    assert only(rows(output), name)[3] == "Ongoing"
    writer.producer.commit_transaction()
    assert only(rows(run("transactions", "list").stdout), name)[3] == "CompleteCommit"


def test_transactions_are_listed_by_name_and_age(run: Run, writer: TransactionWriter) -> None:
    (row,) = rows(run("transactions", "list", "--transactional-id-pattern", writer.transactional_id).stdout)
    assert row[0] == writer.transactional_id
    assert rows(run("transactions", "list", "--transactional-id-pattern", "missing.*").stdout) == []
    assert rows(run("transactions", "list", "--duration-filter", 3_600_000).stdout) == []


def test_a_transaction_is_described(run: Run, writer: TransactionWriter, topic: str) -> None:
    arguments = ("transactions", "describe", "--transactional-id", writer.transactional_id)
    (row,) = rows(run(*arguments).stdout)
    assert row[:2] == ["1", writer.transactional_id]
    assert row[4:6] == ["Ongoing", "60000"]
    assert abs(int(row[6]) - time.time() * 1000) < 60_000
    assert 0 <= int(row[7]) < 60_000
    assert row[8] == f"{topic}-1"
    missing = run("transactions", "describe", "--transactional-id", "missing", fails=True)
    assert "there is no transactional id missing" in missing.stderr


def test_the_producers_of_a_partition_are_described(run: Run, writer: TransactionWriter, topic: str) -> None:
    arguments = ("transactions", "describe-producers", "--topic", topic, "--partition")
    (row,) = rows(run(*arguments, 1).stdout)
    assert row[3] == "0"
    assert row[5] == "0"
    writer.producer.commit_transaction()
    (row,) = rows(run(*arguments, 1, "--broker-id", 1).stdout)
    assert row[5] == "None"
    assert rows(run(*arguments, 0).stdout) == []
    assert f"there is no partition {topic}-7" in run(*arguments, 7, fails=True).stderr


def test_a_coordinated_transaction_is_not_hanging(run: Run, writer: TransactionWriter, topic: str) -> None:
    for scope in (("--topic", topic), ("--topic", topic, "--partition", 1), ("--broker-id", 1)):
        arguments = ("transactions", "find-hanging", *scope, "--max-transaction-timeout", 0)
        assert rows(run(*arguments).stdout) == []


def test_a_transaction_without_a_coordinator_is_hanging(
    run: Run, writer: TransactionWriter, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none_listed(*_: object, **filters: object) -> list[object]:
        return []

    monkeypatch.setattr("millrace.admin.transactions.list_transactions", none_listed)
    time.sleep(0.002)
    (row,) = rows(
        run("transactions", "find-hanging", "--topic", topic, "--max-transaction-timeout", 0).stdout
    )
    assert row[:2] == [topic, "1"]
    assert row[5] == "0"
    assert row[7] == "0"


def test_a_transaction_is_aborted_in_one_partition(run: Run, writer: TransactionWriter, topic: str) -> None:
    partition_options = ("--topic", topic, "--partition", 1)
    missing = run("transactions", "abort", *partition_options, "--start-offset", 5, fails=True)
    assert f"any open transactions starting at offset 5 on partition {topic}-1" in missing.stderr
    run("transactions", "abort", *partition_options, "--start-offset", 0)
    (row,) = rows(run("transactions", "describe-producers", *partition_options).stdout)
    assert row[5] == "None"


def test_a_transaction_is_aborted_by_its_producer(run: Run, writer: TransactionWriter, topic: str) -> None:
    partition_options = ("--topic", topic, "--partition", 1)
    (row,) = rows(run("transactions", "describe-producers", *partition_options).stdout)
    producer = ("--producer-id", row[0], "--producer-epoch", row[1], "--coordinator-epoch", row[2])
    run("transactions", "abort", *partition_options, *producer)
    (row,) = rows(run("transactions", "describe-producers", *partition_options).stdout)
    assert row[5] == "None"


def test_a_transaction_is_terminated_by_force(run: Run, writer: TransactionWriter) -> None:
    run("transactions", "forceTerminateTransaction", "--transactionalId", writer.transactional_id)
    assert only(rows(run("transactions", "list").stdout), writer.transactional_id)[3] in (
        "CompleteAbort",
        "Empty",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "Missing command"),
        ("nonsense", "No such command 'nonsense'"),
        ("describe", "Missing option '--transactional-id'"),
        ("find-hanging", "find-hanging needs --topic NAME or --broker-id ID"),
        ("find-hanging --broker-id 1 --partition 0", "--partition needs --topic"),
        ("abort --topic t --partition 0", "name the transaction by --start-offset"),
        ("abort --topic t --partition 0 --producer-id 1", "--producer-epoch and --coordinator-epoch"),
    ],
)
def test_invalid_options_are_rejected(run: Run, arguments: str, message: str) -> None:
    assert message in run("transactions", *arguments.split(), fails=True).stderr
