"""Our commands and Apache's tools print the same about a broker and its files."""

import json

import pytest

from millrace.testing import Broker

from .apache import TOOLS, apache
from .conftest import Run

pytestmark = pytest.mark.java


def sorted_configs(described: str) -> str:
    """Apache's tool lists a topic's settings in the order of a hash map."""
    head, marker, configs = described.partition("Configs: ")
    first, newline, rest = configs.partition("\n")
    return head + marker + ",".join(sorted(first.split(","))) + newline + rest


def test_topics_are_described_the_same(run: Run, broker: Broker, topic: str) -> None:
    settings = ("--config", "retention.ms=1000", "--config", "segment.bytes=2000000")
    run("topics", "--create", "--topic", topic, "--partitions", 3, *settings)
    arguments = ("--describe", "--topic", topic)
    ours = run("topics", *arguments).stdout
    assert sorted_configs(ours) == sorted_configs(apache(broker, f"{TOOLS}.TopicCommand", *arguments))


def test_offsets_are_printed_the_same(run: Run, broker: Broker, produced: str) -> None:
    arguments = ("--topic-partitions", f"{produced}:0,{produced}:1-")
    assert run("get-offsets", *arguments).stdout == apache(broker, f"{TOOLS}.GetOffsetShell", *arguments)


def test_configs_are_described_the_same(run: Run, broker: Broker, topic: str) -> None:
    run("topics", "--create", "--topic", topic, "--config", "cleanup.policy=compact")
    for arguments in (("--topic", topic, "--all"), ("--broker", 1, "--all"), ("--broker-defaults",)):
        theirs = apache(broker, "kafka.admin.ConfigCommand", "--describe", *arguments)
        assert run("configs", "--describe", *arguments).stdout == theirs


def test_log_directories_are_printed_the_same(run: Run, broker: Broker, produced: str) -> None:
    arguments = ("--describe", "--topic-list", produced)
    ours = run("log-dirs", *arguments).stdout.splitlines()
    theirs = apache(broker, f"{TOOLS}.LogDirsCommand", *arguments).splitlines()
    assert ours[:2] == theirs[:2]
    assert partitions(ours[2]) == partitions(theirs[2])


def partitions(document: str) -> dict[str, object]:
    (log_dir,) = json.loads(document)["brokers"][0]["logDirs"]
    return {partition.pop("partition"): partition for partition in log_dir["partitions"]}


def test_records_are_printed_the_same(run: Run, broker: Broker, topic: str) -> None:
    run("topics", "--create", "--topic", topic)
    parse = ("--property", "parse.key=true", "--property", "parse.headers=true")
    run("console-producer", "--topic", topic, *parse, input="h:x,i:y\tk\tv\nj:\t\t\n")
    names = ("timestamp", "partition", "offset", "headers", "key")
    printed = [word for name in names for word in ("--formatter-property", f"print.{name}=true")]
    arguments = ("--topic", topic, "--partition", 0, "--offset", 0, "--max-messages", 2, *printed)
    theirs = apache(broker, f"{TOOLS}.consumer.ConsoleConsumer", *arguments)
    assert run("console-consumer", *arguments).stdout == theirs


def test_segments_are_dumped_the_same(run: Run, broker: Broker, topic: str) -> None:
    run("topics", "--create", "--topic", topic, "--config", "segment.bytes=1048576")
    run(
        *(
            "producer-perf-test",
            "--topic",
            topic,
            "--num-records",
            2500,
            "--record-size",
            1000,
            "--throughput",
        ),
        *(-1, "--producer-props", "enable.idempotence=true", "batch.size=16384", "compression.type=lz4"),
    )
    run("console-producer", "--topic", topic, "--property", "parse.key=true", input="key\tvalue\n")
    directory = broker.data_dir / f"{topic}-0"
    files = ",".join(str(file) for file in sorted(directory.glob("0*.*")) if file.stat().st_size)
    for options in (("--print-data-log",), ("--deep-iteration", "--skip-record-metadata"), ()):
        arguments = ("--files", files, *options)
        assert run("dump-log", *arguments).stdout == apache(None, f"{TOOLS}.DumpLogSegments", *arguments)
