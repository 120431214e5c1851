import pytest

from millrace.testing import Broker
from millrace.wire.schema import uuid_to_text

from .conftest import Run


def test_a_topic_is_created_listed_described_and_deleted(run: Run, broker: Broker, topic: str) -> None:
    assert (
        run("topics", "--create", "--topic", topic, "--partitions", 3).stdout == f"Created topic {topic}.\n"
    )
    assert topic in run("topics", "--list").stdout.split()
    topic_id = uuid_to_text(broker.broker.node.metadata.image.topics[topic].topic_id)
    assert run("topics", "--describe", "--topic", topic).stdout.splitlines() == [
        f"Topic: {topic}\tTopicId: {topic_id}\tPartitionCount: 3\tReplicationFactor: 1\tConfigs: ",
        *(
            f"\tTopic: {topic}\tPartition: {index}\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: "
            for index in range(3)
        ),
    ]
    assert run("topics", "--delete", "--topic", topic).stdout == ""
    assert topic not in run("topics", "--list").stdout.split()


def test_the_old_form_with_zookeeper_is_accepted(run: Run, topic: str) -> None:
    result = run(
        *("topics", "--zookeeper", "zookeeper1:2181", "--create", "--topic", f"{topic}.hydra"),
        *("--partitions", 3, "--replication-factor", 1, "--config", "retention.ms=1000"),
    )
    assert result.stdout == f"Created topic {topic}.hydra.\n"
    assert "note: --zookeeper is not needed" in result.stderr
    assert "retention.ms=1000" in run("topics", "--describe", "--topic", f"{topic}.hydra").stdout


def test_more_replicas_than_brokers_are_rejected_with_a_remedy(run: Run, topic: str) -> None:
    result = run("topics", "--create", "--topic", topic, "--replication-factor", 2, fails=True)
    assert "a single broker holds one copy; use --replication-factor 1" in result.stderr


def test_an_unknown_setting_is_rejected(run: Run, topic: str) -> None:
    assert "x" in run("topics", "--create", "--topic", topic, "--config", "x=y", fails=True).stderr


def test_a_topic_that_exists_is_an_error_unless_accepted(run: Run, topic: str) -> None:
    run("topics", "--create", "--topic", topic)
    assert "already exists" in run("topics", "--create", "--topic", topic, fails=True).stderr
    assert run("topics", "--create", "--topic", topic, "--if-not-exists").stdout == ""


@pytest.mark.parametrize("action", [("--describe",), ("--delete",), ("--alter", "--partitions", 2)])
def test_a_topic_that_does_not_exist_is_an_error_unless_accepted(
    run: Run, action: tuple[object, ...]
) -> None:
    missing = ("topics", *action, "--topic", "missing")
    assert "Topic 'missing' does not exist as expected" in run(*missing, fails=True).stderr
    assert run(*missing, "--if-exists").output == ""


def test_partitions_are_added_but_never_removed(run: Run, topic: str) -> None:
    run("topics", "--create", "--topic", topic)
    run("topics", "--alter", "--topic", topic, "--partitions", 4)
    assert "PartitionCount: 4" in run("topics", "--describe", "--topic", topic).stdout
    assert run("topics", "--alter", "--topic", topic, "--partitions", 2, fails=True).stderr


def test_topics_are_selected_by_pattern_and_by_id(run: Run, broker: Broker, topic: str) -> None:
    for suffix in ("one", "two"):
        run("topics", "--create", "--topic", f"{topic}-{suffix}")
    assert run("topics", "--list", "--topic", f"{topic}-.*").stdout.split() == [
        f"{topic}-one",
        f"{topic}-two",
    ]
    assert run("topics", "--list", "--topic", f"{topic}-o").stdout == ""
    topic_id = uuid_to_text(broker.broker.node.metadata.image.topics[f"{topic}-one"].topic_id)
    assert f"Topic: {topic}-one\t" in run("topics", "--describe", "--topic-id", topic_id).stdout
    assert "does not exist" in run("topics", "--describe", "--topic-id", "A" * 21 + "Q", fails=True).stderr


def test_topics_with_overrides_are_selected(run: Run, topic: str) -> None:
    run("topics", "--create", "--topic", f"{topic}-plain")
    run("topics", "--create", "--topic", f"{topic}-set", "--config", "cleanup.policy=compact")
    described = run("topics", "--describe", "--topics-with-overrides").stdout
    assert f"Topic: {topic}-set\t" in described
    assert f"{topic}-plain" not in described
    assert "\tPartition:" not in described


@pytest.mark.parametrize(
    "filter_", ["--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"]
)
def test_a_healthy_broker_has_no_under_replicated_partitions(run: Run, produced: str, filter_: str) -> None:
    assert run("topics", "--describe", filter_).stdout == ""


def test_partitions_at_the_minimum_of_replicas_are_shown(run: Run, produced: str) -> None:
    shown = run("topics", "--describe", "--topic", produced, "--at-min-isr-partitions").stdout
    assert shown.count(f"\tTopic: {produced}\tPartition: ") == 2


def test_replicas_can_be_assigned_by_hand(run: Run, topic: str) -> None:
    run("topics", "--create", "--topic", topic, "--replica-assignment", "1,1,1")
    assert "PartitionCount: 3" in run("topics", "--describe", "--topic", topic).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give exactly one of --create, --list, --describe, --alter and --delete"),
        (("--create", "--list"), "give exactly one of"),
        (("--create",), "--create needs --topic NAME"),
        (("--list", "--partitions", 3), "--partitions cannot be used with --list"),
        (("--alter", "--topic", "t"), "--alter needs --partitions N"),
        (("--alter", "--topic", "t", "--config", "a=b"), "use `millrace configs --alter --topic NAME`"),
        (("--create", "--topic", "t", "--config", "a"), "--config a: write it as key=value"),
        (("--create", "--topic", "t", "--replica-assignment", "1:x"), "write broker ids"),
        (("--create", "--topic", "t", "--replica-assignment", "1:1"), "names a broker twice"),
        (("--create", "--topic", "t", "--replica-assignment", "1:2,1"), "same number of replicas"),
        (("--create", "--topic", "a b"), "contains one or more characters"),
        (("--describe", "--topic-id", "x"), "this is not a topic id"),
        (("--describe", "--topic", "("), "is not a regular expression"),
    ],
)
def test_invalid_options_are_rejected(run: Run, arguments: tuple[object, ...], message: str) -> None:
    assert message in run("topics", *arguments, fails=True).stderr
