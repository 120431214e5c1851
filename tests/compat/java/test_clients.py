"""The Java client library in an application: one program per version makes all checks in one JVM."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.jars import apache_kafka_classpath, java, kafka_clients_classpath
from millrace.testing import Broker
from millrace.testing.apache_kafka import TOOL_JVM_OPTIONS

pytestmark = pytest.mark.java

PROGRAM = Path(__file__).with_name("ClientChecks.java")

# Results of the same program with Apache Kafka 4.3.1; errors are named by the client's exception.
EXPECTED = {
    "create a topic": "3",
    "create it again": "TopicExistsException",
    "create a topic with a bad name": "InvalidTopicException",
    "create a topic with too many replicas": "InvalidReplicationFactorException",
    "create a topic with a bad config": "InvalidConfigurationException",
    "create a topic with the broker's defaults": "1",
    "only validate a topic": "false",
    "list topics": "true",
    "describe a topic": "3 partitions, leader 1, 1 in sync, internal false, has id true",
    "describe a missing topic": "UnknownTopicOrPartitionException",
    "add partitions": "5",
    "take partitions away": "InvalidPartitionsException",
    "delete a topic": "false",
    "delete a missing topic": "UnknownTopicOrPartitionException",
    "produce with acks=0": "100",
    "produce with acks=1": "100",
    "produce with acks=all": "100",
    "produce and consume with none": "true",
    "produce and consume with gzip": "true",
    "produce and consume with snappy": "true",
    "produce and consume with lz4": "true",
    "produce and consume with zstd": "true",
    "idempotent producer gets ascending offsets": "500",
    "key, value, headers and timestamp come back": "[key:value color=blue empty=null@0, tombstone:null@0]",
    "a record over the limit is refused": "RecordTooLargeException",
    "producing creates a topic": "true",
    "seek": "record 42",
    "seek to the beginning and to the end": "0..100",
    "beginning and end offsets": "0..100",
    "offsets for times": "[0, 42, 99, none]",
    "partitions of a topic": "5",
    "beyond the end, without a reset": "OffsetOutOfRangeException",
    "beyond the end, reset to earliest": "record 0",
    "at the end, wait for the next record": "0 then fresh",
    "a record bigger than the fetch limits still arrives": "500000",
    "read_committed sees plain records": "101",
    "list offsets: earliest": "0 at -1",
    "list offsets: earliest local": "0 at -1",
    "list offsets: for a timestamp": "7 at 7",
    "list offsets: latest": "101 at -1",
    "list offsets: latest tiered": "-1 at -1",
    "list offsets: max timestamp": "100 at 100",
    "describe a topic's configs": "3600000 from DYNAMIC_TOPIC_CONFIG, delete from DEFAULT_CONFIG",
    "set, append, subtract and delete a topic's config": "[delete,compact, compact, delete, 12345]",
    "set a config to nonsense": "InvalidConfigurationException",
    "set an unknown config": "InvalidConfigurationException",
    "describe the broker's configs": "1 read-only",
    "alter the brokers' default config": "7200000 from DYNAMIC_DEFAULT_BROKER_CONFIG",
    "delete records": "30, first is now record 30",
    "delete records beyond the end": "OffsetOutOfRangeException",
    "describe log directories": "true",
    "describe the cluster": "1 node, controller true, id true",
    "describe features": "true",
}


@pytest.fixture(scope="module", params=["4.3.1", "3.9.2"])
def seen(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """The results of one version of the client, by check."""
    classpath = (
        apache_kafka_classpath() if request.param == "4.3.1" else kafka_clients_classpath(request.param)
    )
    with Broker({"broker.id": "1"}) as broker:
        command = [str(java()), *TOOL_JVM_OPTIONS, "-cp", classpath, str(PROGRAM), broker.bootstrap]
        run = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert run.returncode == 0, run.stderr
    lines = [line.split("\t") for line in run.stdout.splitlines()]
    yield {line[1]: line[2] for line in lines if line[0] in {"value", "error"}}


@pytest.mark.parametrize("check", EXPECTED)
def test_client_sees_what_apache_kafka_shows_it(seen: dict[str, str], check: str) -> None:
    assert seen[check] == EXPECTED[check]


def test_every_check_has_an_expectation(seen: dict[str, str]) -> None:
    assert set(seen) == set(EXPECTED)
