"""Apache Kafka's own command-line tools against our broker and over our files."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.testing import Broker
from millrace.testing.apache_kafka import run_tool

pytestmark = pytest.mark.java

# The dump tool's reports of a wrong segment or index.
COMPLAINTS = r"mismatch|not found|corrupt|isvalid: false|out of order|\d+ is followed by"
# It reports this for every segment but a partition's first, even for Apache Kafka's own.
HARMLESS = re.compile(r"^ *-1 is followed by \d+\n", re.MULTILINE)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"broker.id": "1", "log.segment.bytes": str(1 << 20)}) as broker:
        yield broker


def tool(name: str, broker: Broker, *arguments: str, input: str | None = None) -> str:
    """Run a tool against the broker; returns its output without line ends."""
    main_class = name if name.startswith("kafka.") else f"org.apache.kafka.tools.{name}"
    run = run_tool(main_class, ["--bootstrap-server", broker.bootstrap, *arguments], input=input)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout.strip()


def test_topics_are_created_altered_described_listed_and_deleted(broker: Broker) -> None:
    created = ("--create", "--topic", "events", "--partitions", "2", "--config", "retention.ms=3600000")
    assert tool("TopicCommand", broker, *created) == "Created topic events."
    tool("TopicCommand", broker, "--alter", "--topic", "events", "--partitions", "3")
    described = tool("TopicCommand", broker, "--describe", "--topic", "events").splitlines()
    assert "PartitionCount: 3\tReplicationFactor: 1" in described[0]
    assert "retention.ms=3600000" in described[0]
    assert described[1].startswith("\tTopic: events\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1")
    assert "events" in tool("TopicCommand", broker, "--list").splitlines()
    tool("TopicCommand", broker, "--delete", "--topic", "events")
    assert "events" not in tool("TopicCommand", broker, "--list").splitlines()


def test_console_consumer_reads_what_console_producer_wrote(broker: Broker) -> None:
    lines = [f"key {number}:value {number}" for number in range(5)]
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    tool("ConsoleProducer", broker, "--topic", "console", *keyed, input="\n".join(lines) + "\n")
    read = tool(
        "consumer.ConsoleConsumer",
        broker,
        *("--topic", "console", "--partition", "0", "--offset", "1", "--max-messages", "4"),
        *("--formatter-property", "print.key=true", "--formatter-property", "key.separator=:"),
    )
    assert read.splitlines() == lines[1:]


def test_configs_are_altered_and_described(broker: Broker) -> None:
    tool("TopicCommand", broker, "--create", "--topic", "configured")
    entity = ("--entity-type", "topics", "--entity-name", "configured")
    altered = ("--alter", *entity, "--add-config", "max.message.bytes=2000")
    assert "Completed updating config for topic configured." in tool(
        "kafka.admin.ConfigCommand", broker, *altered
    )
    described = tool("kafka.admin.ConfigCommand", broker, "--describe", *entity)
    assert "max.message.bytes=2000 sensitive=false" in described
    assert "DYNAMIC_TOPIC_CONFIG:max.message.bytes=2000" in described
    assert "DEFAULT_CONFIG:message.max.bytes=1048588" in described


def test_records_and_directories_are_administered(broker: Broker, tmp_path: Path) -> None:
    tool("ConsoleProducer", broker, "--topic", "trimmed", input="a\nb\nc\n")
    request = tmp_path / "offsets.json"
    request.write_text(
        json.dumps({"partitions": [{"topic": "trimmed", "partition": 0, "offset": 2}], "version": 1})
    )
    deleted = tool("DeleteRecordsCommand", broker, "--offset-json-file", str(request))
    assert "partition: trimmed-0\tlow_watermark: 2" in deleted
    assert tool("GetOffsetShell", broker, "--topic", "trimmed", "--time", "earliest") == "trimmed:0:2"
    assert tool("GetOffsetShell", broker, "--topic", "trimmed", "--time", "latest") == "trimmed:0:3"
    directories = json.loads(
        tool("LogDirsCommand", broker, "--describe", "--topic-list", "trimmed").splitlines()[-1]
    )
    (partition,) = directories["brokers"][0]["logDirs"][0]["partitions"]
    assert partition["partition"] == "trimmed-0"
    assert partition["size"] > 0


def test_broker_api_versions_are_understood(broker: Broker) -> None:
    versions = tool("BrokerApiVersionsCommand", broker)
    assert "Produce(0): 0 to 13 [usable: 13]" in versions
    assert "Fetch(1): 4 to 18 [usable: 18]" in versions


def test_dump_log_verifies_segments_and_indexes_of_a_perf_test(broker: Broker) -> None:
    measured = ("--topic", "perf", "--num-records", "30000", "--record-size", "100", "--throughput", "-1")
    assert "30000 records sent" in tool("ProducerPerformance", broker, *measured)
    assert tool("GetOffsetShell", broker, "--topic", "perf", "--time", "latest") == "perf:0:30000"

    files = sorted((broker.data_dir / "perf-0").glob("0*"))
    files = [path for path in files if path.suffix in {".log", ".index", ".timeindex"}]
    assert len(files) >= 9, "the test is meant to look at several segments"
    dump = run_tool(
        "org.apache.kafka.tools.DumpLogSegments", ["--deep-iteration", "--files", ",".join(map(str, files))]
    )
    assert dump.returncode == 0, dump.stdout + dump.stderr
    assert not re.search(COMPLAINTS, HARMLESS.sub("", dump.stdout + dump.stderr), re.IGNORECASE)
    offsets = re.findall(r"^\| offset: (\d+) ", dump.stdout, re.MULTILINE)
    assert [int(offset) for offset in offsets] == list(range(30_000))
