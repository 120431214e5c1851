"""Apache Kafka's tools for groups: kafka-consumer-groups, and the verifiable producer and consumer."""

import json
import re
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.testing import Broker
from millrace.testing.apache_kafka import run_tool

from ..conftest import NO_RETENTION_CHECK

pytestmark = pytest.mark.java

RECORDS = 10


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"broker.id": "1", "group.min.session.timeout.ms": "1000"} | NO_RETENTION_CHECK) as broker:
        yield broker


@pytest.fixture(scope="module", autouse=True)
def orders(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    admin.create_topics([NewTopic("orders", 2)])["orders"].result(20)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    for number in range(RECORDS):
        producer.produce("orders", b"%d" % number, partition=number % 2, timestamp=1_000_000 + number)
    assert producer.flush(20) == 0


def consumer_groups(broker: Broker, *arguments: str) -> str:
    run = run_tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        ["--bootstrap-server", broker.bootstrap, *arguments],
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def rows(table: str) -> list[list[str]]:
    """The rows below the line of headings."""
    lines = [line.split() for line in table.splitlines() if line.strip()]
    (heading,) = (number for number, line in enumerate(lines) if line[0] == "GROUP")
    return lines[heading + 1 :]


def test_a_group_with_a_member_is_described_in_every_way(broker: Broker) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "described",
            "client.id": "app",
            "group.instance.id": "one",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    consumer.subscribe(["orders"])
    deadline = time.monotonic() + 20
    while not consumer.assignment():
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    while consumer.poll(1.0) is not None:
        pass
    consumer.commit(asynchronous=False)

    offsets = rows(consumer_groups(broker, "--describe", "--group", "described"))
    assert [row[:6] for row in offsets] == [
        ["described", "orders", "0", "5", "5", "0"],
        ["described", "orders", "1", "5", "5", "0"],
    ]
    assert all(row[6].startswith("one-") and row[-2:] == ["/127.0.0.1", "app"] for row in offsets)
    (member,) = rows(consumer_groups(broker, "--describe", "--group", "described", "--members", "--verbose"))
    assert member[2:8] == ["one", "/127.0.0.1", "app", "2", "-", "orders:0,1"]
    (state,) = rows(consumer_groups(broker, "--describe", "--group", "described", "--state"))
    assert state[0] == "described"
    assert {"Stable", "range", "1"} <= set(state)
    consumer.close()


def test_groups_are_listed_rewound_and_deleted(broker: Broker) -> None:
    group = ("--group", "rewound")
    topic = ("--topic", "orders")
    planned = consumer_groups(broker, *group, *topic, "--reset-offsets", "--to-earliest", "--execute")
    assert rows(planned) == [["rewound", "orders", "0", "0"], ["rewound", "orders", "1", "0"]]
    assert "rewound" in consumer_groups(broker, "--list").splitlines()
    shifted = consumer_groups(broker, *group, *topic, "--reset-offsets", "--shift-by", "3", "--execute")
    assert [row[3] for row in rows(shifted)] == ["3", "3"]
    described = rows(consumer_groups(broker, "--describe", *group))
    assert [row[3:6] for row in described] == [["3", "5", "2"], ["3", "5", "2"]]
    assert "rewound" in consumer_groups(broker, *group, "--delete-offsets", *topic)
    consumer_groups(broker, *group, *topic, "--reset-offsets", "--to-latest", "--execute")
    assert "successful" in consumer_groups(broker, "--delete", *group)
    assert "rewound" not in consumer_groups(broker, "--list").splitlines()


def test_the_verifiable_consumer_reads_and_commits_what_the_verifiable_producer_wrote(broker: Broker) -> None:
    common = ["--bootstrap-server", broker.bootstrap, "--topic", "verified", "--max-messages", "500"]
    produced = run_tool("org.apache.kafka.tools.VerifiableProducer", common)
    assert produced.returncode == 0, produced.stderr
    assert json.loads(produced.stdout.splitlines()[-1])["sent"] == 500
    settings = ["--group-id", "verifying", "--reset-policy", "earliest"]
    consumed = run_tool("org.apache.kafka.tools.VerifiableConsumer", [*common, *settings])
    assert consumed.returncode == 0, consumed.stderr
    events = [json.loads(line) for line in consumed.stdout.splitlines() if line.startswith("{")]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 500
    commits = [event for event in events if event["name"] == "offsets_committed"]
    assert commits
    assert all(event["success"] for event in commits)
    assert commits[-1]["offsets"] == [{"topic": "verified", "partition": 0, "offset": 500}]
    assert not re.search(r"ERROR|Exception", consumed.stderr)
