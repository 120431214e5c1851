"""Apache Kafka's kafka-transactions tool."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from millrace.testing import Broker
from millrace.testing.apache_kafka import run_tool

from .reading import SECONDS, Reading

pytestmark = [pytest.mark.java, pytest.mark.usefixtures("java_and_jars")]


@pytest.fixture(scope="module")
def open_transaction(broker: Broker) -> Iterator[Producer]:
    """A transaction of "tool-id" with one record in tool-topic."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": "tool-id", "log_level": 2}
    )
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce("tool-topic", b"x")
    producer.flush(SECONDS)
    yield producer


def transactions(broker: Broker, *arguments: str) -> list[list[str]]:
    """The rows that the tool prints, split at white space."""
    run = run_tool(
        "org.apache.kafka.tools.TransactionsCommand", ["--bootstrap-server", broker.bootstrap, *arguments]
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return [line.split() for line in run.stdout.splitlines()]


def test_transactions_are_listed(broker: Broker, open_transaction: Producer) -> None:
    _, *rows = transactions(broker, "list", "--transactional-id-pattern", "tool-.*")
    assert [(row[0], row[3]) for row in rows] == [("tool-id", "Ongoing")]
    assert transactions(broker, "list", "--duration-filter", "600000")[1:] == []


def test_a_transaction_is_described(broker: Broker, open_transaction: Producer) -> None:
    header, row = transactions(broker, "describe", "--transactional-id", "tool-id")
    described = dict(zip(header, row, strict=True))
    assert described["TransactionalId"] == "tool-id"
    assert described["TransactionState"] == "Ongoing"
    assert described["TransactionTimeoutMs"] == "60000"
    assert described["TopicPartitions"] == "tool-topic-0"


def test_producers_are_described_and_a_transaction_is_aborted(
    broker: Broker, open_transaction: Producer, reading: Reading
) -> None:
    partition = ("--topic", "tool-topic", "--partition", "0")
    header, row = transactions(broker, "describe-producers", *partition)
    described = dict(zip(header, row, strict=True))
    assert described["CurrentTransactionStartOffset"] == "0"
    assert reading.is_open("tool-topic")
    transactions(broker, "abort", *partition, "--start-offset", "0")
    assert not reading.is_open("tool-topic")
    assert reading.committed("tool-topic") == []


def test_the_state_log_is_kafkas(broker: Broker, open_transaction: Producer) -> None:
    files = ",".join(map(str, broker.data_dir.glob("__transaction_state-*/*.log")))
    run = run_tool("org.apache.kafka.tools.DumpLogSegments", ["--transaction-log-decoder", "--files", files])
    assert run.returncode == 0, run.stdout + run.stderr
    records = [line for line in run.stdout.splitlines() if "tool-id" in line]
    assert '"transactionStatus":0' in records[0] and '"transactionStatus":1' in records[-1]
    assert '"topic":"tool-topic","partitionIds":[0]' in records[-1]


def test_no_transaction_hangs(broker: Broker, open_transaction: Producer) -> None:
    assert transactions(broker, "find-hanging", "--broker-id", "1")[1:] == []
