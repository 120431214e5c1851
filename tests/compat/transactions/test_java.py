"""Transactions of the Java client: 3.9.2 speaks the old protocol, 4.3.1 bumps its epoch per transaction."""

import subprocess
from pathlib import Path

import pytest

from millrace.jars import apache_kafka_classpath, java, kafka_clients_classpath
from millrace.testing import Broker
from millrace.testing.apache_kafka import TOOL_JVM_OPTIONS

from .conftest import PROPERTIES

pytestmark = [pytest.mark.java, pytest.mark.usefixtures("java_and_jars")]

PROGRAM = Path(__file__).with_name("TransactionChecks.java")

# Results of the same program with Apache Kafka 4.3.1; errors are named by the client's exception. Only Kafka
# may be seen between PrepareCommit and CompleteCommit.
EXPECTED = {
    "commit": "[a, b]",
    "abort": "[a, c] of [a, b, c]",
    "many transactions": "true",
    "a transaction without records": "committed",
    "an abort without records": "[a]",
    "several partitions": "10",
    "an open transaction holds back readers": "[] then [open, quick]",
    "fencing": "ProducerFencedException [heir]",
    "fencing through the admin client": "ProducerFencedException []",
    "a timeout aborts": "refused, []",
    "too long a timeout": "KafkaException",
    "read, process, write": "20 records, offset 20",
    "an abort leaves the offsets": "1",
    "list and describe": "Ongoing true 1 partition, 60000 ms, then CompleteCommit",
    "producers of a partition": "OptionalLong[0] then OptionalLong.empty",
    "abort a hanging transaction": "OptionalLong.empty",
}

EPOCH_AFTER_THREE_TRANSACTIONS = {"4.3.1": "3", "3.9.2": "0"}


@pytest.fixture(scope="module", params=EPOCH_AFTER_THREE_TRANSACTIONS)
def seen(request: pytest.FixtureRequest) -> dict[str, str]:
    """The results of one version of the client, by check."""
    classpath = (
        apache_kafka_classpath() if request.param == "4.3.1" else kafka_clients_classpath(request.param)
    )
    with Broker(PROPERTIES) as broker:
        command = [str(java()), *TOOL_JVM_OPTIONS, "-cp", classpath, str(PROGRAM), broker.bootstrap]
        run = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert run.returncode == 0, run.stderr
    lines = [line.split("\t") for line in run.stdout.splitlines()]
    seen = {line[1]: line[2] for line in lines if line[0] in {"value", "error"}}
    assert seen.pop("epoch after three transactions") == EPOCH_AFTER_THREE_TRANSACTIONS[request.param]
    return seen


@pytest.mark.parametrize("check", EXPECTED)
def test_client_sees_what_apache_kafka_shows_it(seen: dict[str, str], check: str) -> None:
    assert seen[check] == EXPECTED[check]


def test_every_check_has_an_expectation(seen: dict[str, str]) -> None:
    assert set(seen) == set(EXPECTED)
