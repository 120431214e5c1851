"""The Java client's classic groups in applications: one program per version makes all checks in one JVM."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.jars import apache_kafka_classpath, java, kafka_clients_classpath
from millrace.testing import Broker
from millrace.testing.apache_kafka import TOOL_JVM_OPTIONS

pytestmark = pytest.mark.java

PROGRAM = Path(__file__).with_name("GroupChecks.java")

# Results of the same program with Apache Kafka 4.3.1; errors are named by the client's exception.
EXPECTED = {
    "share with RangeAssignor": "[2, 2] then [4]",
    "share with RoundRobinAssignor": "[2, 2] then [4]",
    "share with StickyAssignor": "[2, 2] then [4]",
    "share with CooperativeStickyAssignor": "[2, 2] then [4]",
    "cooperative rebalances take away only what moves": "2 revoked",
    "from eager to cooperative": "range",
    "a member that dies": "[4]",
    "a member that does not poll": "[4]",
    "subscribe to a pattern": "[8]",
    "change the subscription": "[4]",
    "a topic that grows": "[3]",
    "every record goes to one member": "40",
    "enforce a rebalance": "1",
    "a static member comes back": "rebalanced 0 times",
    "an instance id twice": "FencedInstanceIdException",
    "remove a static member": "[4]",
    "remove an unknown static member": "UnknownMemberIdException",
    "remove all members": "0",
    "commit and go on": "4 note, goes on at 4",
    "commit without waiting": "[4]",
    "commit on close": "{orders-0=10, orders-1=10, orders-2=10, orders-3=10}",
    "go back in time": "5 then 5",
    "commit of a member that was left behind": "CommitFailedException",
    "commit into others' group": "CommitFailedException",
    "commit without being a member": "7",
    "commit too much metadata": "OffsetMetadataTooLarge",
    "no common assignor": "InconsistentGroupProtocolException",
    "too short a session": "InvalidSessionTimeoutException",
    "describe a group": "Stable range false the-client /127.0.0.1 4",
    "list groups by state": "true",
    "list groups by another state": "false",
    "delete a group with members": "GroupNotEmptyException",
    "delete offsets in use": "GroupSubscribedToTopicException",
    "alter offsets of a group with members": "UnknownMemberIdException",
    "describe an empty group": "Empty",
    "alter offsets": "1",
    "delete offsets": "0",
    "delete a group": "false",
    "delete a missing group": "GroupIdNotFoundException",
    "describe a missing group": "GroupIdNotFoundException",
}
# Older clients use a version without an error for it.
EXPECTED_OF_OLD = EXPECTED | {"describe a missing group": "Dead"}


@pytest.fixture(scope="module", params=["4.3.1", pytest.param("3.9.2", marks=pytest.mark.proof)])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def seen(version: str) -> Iterator[dict[str, str]]:
    """The results of one version of the client, by check."""
    classpath = apache_kafka_classpath() if version == "4.3.1" else kafka_clients_classpath(version)
    with Broker({"group.min.session.timeout.ms": "1000"}) as broker:
        command = [str(java()), *TOOL_JVM_OPTIONS, "-cp", classpath, str(PROGRAM), broker.bootstrap]
        run = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert run.returncode == 0, run.stderr
    lines = [line.split("\t") for line in run.stdout.splitlines()]
    yield {line[1]: line[2] for line in lines if line[0] in {"value", "error"}}


@pytest.mark.parametrize("check", EXPECTED)
def test_client_sees_what_apache_kafka_shows_it(seen: dict[str, str], version: str, check: str) -> None:
    expected = EXPECTED if version == "4.3.1" else EXPECTED_OF_OLD
    assert seen[check] == expected[check]


def test_every_check_has_an_expectation(seen: dict[str, str]) -> None:
    assert set(seen) == set(EXPECTED)
