"""The Java client's consumer protocol: one program per version makes all checks in one JVM."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.jars import JarsUnavailable, apache_kafka_classpath, java, kafka_clients_classpath
from millrace.testing import Broker
from millrace.testing.apache_kafka import TOOL_JVM_OPTIONS, run_tool

from .members import QUICK, Crew

pytestmark = pytest.mark.java

PROGRAM = Path(__file__).with_name("NextGroupChecks.java")

# Results of the same program with Apache Kafka 4.3.1; errors are named by the client's exception.
EXPECTED = {
    "the first member reads everything": "40",
    "two members share": "[2, 2]",
    "three members share": "[1, 1, 2]",
    "new partitions are shared": "[2, 2, 2]",
    "the remaining member has everything": "[6]",
    "committed offsets": "seven",
    "describe a group in use": "Consumer Stable uniform 1 member with 6",
    "list consumer groups by type": "true",
    "delete a group in use": "GroupNotEmptyException",
    "describe an empty group": "Empty",
    "its offsets are there": "true",
    "delete an empty group": "null",
    "static members share": "[2, 2]",
    "a static member that is back has what it had": "true",
    "the same instance twice": "UnreleasedInstanceIdException",
    "a client's pattern": "[8]",
    "a broker's pattern": "[8]",
    "a pattern that makes no sense": "InvalidRegularExpression",
    "the range assignor": "true",
    "an unknown assignor": "UnsupportedAssignorException",
    "a changed subscription": "[] [0, 1, 2, 3]",
    "classic members share": "[2, 2] Classic",
    "both kinds share": "[1, 1, 2] Consumer",
    "the last classic member goes": "[4] Consumer",
    "a classic member joins": "[2, 2] Consumer",
    "only the classic member stays": "[4] Classic",
}
# Clients before 4.0 cannot let the broker match a pattern.
NOT_BEFORE_4 = ("a broker's pattern", "a pattern that makes no sense")


@pytest.fixture(scope="module", params=["4.3.1", pytest.param("3.9.2", marks=pytest.mark.proof)])
def seen(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """The results of one version of the client, by check."""
    try:
        classpath = (
            apache_kafka_classpath() if request.param == "4.3.1" else kafka_clients_classpath(request.param)
        )
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    with Broker(QUICK) as broker:
        command = [str(java()), *TOOL_JVM_OPTIONS, "-cp", classpath, str(PROGRAM), broker.bootstrap]
        run = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert run.returncode == 0, run.stderr
    lines = [line.split("\t") for line in run.stdout.splitlines()]
    outcomes = {line[1]: line[2] for line in lines if line[0] in {"value", "error"}}
    yield {
        name: EXPECTED[name] if value == "ClassNotFoundException" and name in NOT_BEFORE_4 else value
        for name, value in outcomes.items()
    }


def test_client_sees_what_apache_kafka_shows_it(seen: dict[str, str]) -> None:
    assert seen == EXPECTED


@pytest.fixture(scope="module")
def jars() -> None:
    try:
        apache_kafka_classpath()
    except JarsUnavailable as missing:
        pytest.skip(str(missing))


def consumer_groups(crew: Crew, *arguments: str) -> list[list[str]]:
    """The rows that kafka-consumer-groups prints, by columns."""
    run = run_tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        ["--bootstrap-server", crew.broker.bootstrap, "--describe", "--group", crew.group, *arguments],
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return [line.split() for line in run.stdout.splitlines() if line.strip()]


def test_consumer_groups_tool_describes_members_and_state(jars: None, crew: Crew, topic: str) -> None:
    # With instance ids no column is empty.
    crew.join(topic, client_id="one", group_instance_id="first")
    crew.join(topic, client_id="two", group_instance_id="second")
    crew.share(4)
    header, *members = consumer_groups(crew, "--members", "--verbose")
    rows = [dict(zip(header, member, strict=False)) for member in members]
    assert {row["CLIENT-ID"] for row in rows} == {"one", "two"}
    assert {row["#PARTITIONS"] for row in rows} == {"2"}
    assert {row["HOST"] for row in rows} == {"/127.0.0.1"}
    assert {row["GROUP-INSTANCE-ID"] for row in rows} == {"first", "second"}
    assert len({row["CURRENT-EPOCH"] for row in rows}) == 1
    assert all(row["CURRENT-ASSIGNMENT"] == row["TARGET-ASSIGNMENT"] for row in rows)
    header, state = consumer_groups(crew, "--state", "--verbose")
    described = " ".join(state)
    assert "uniform" in described
    assert "Stable" in described


def test_dump_log_reads_the_records_of_a_group(jars: None, crew: Crew, topic: str) -> None:
    crew.join(f"^{topic}")
    crew.share(4)
    files = [
        str(path)
        for path in crew.broker.data_dir.glob("__consumer_offsets-*/*.log")
        if crew.group.encode() in path.read_bytes()
    ]
    dump = run_tool(
        "org.apache.kafka.tools.DumpLogSegments",
        ["--offsets-decoder", "--print-data-log", "--files", ",".join(files)],
    )
    assert dump.returncode == 0, dump.stdout + dump.stderr
    lines = [line for line in dump.stdout.splitlines() if f'"{crew.group}"' in line]
    # The types of the records: epoch, member, target's epoch, target, assignment, regular expression.
    for record_type in (3, 5, 6, 7, 8, 16):
        assert any(f'key: {{"type":"{record_type}"' in line for line in lines), record_type
    assert not any("unknown" in line.lower() for line in lines)
