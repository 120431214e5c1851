"""The console consumer in groups, and with transactions."""

import re

from confluent_kafka import Producer

from millrace.testing import Broker

from .conftest import Run


def read(run: Run, topic: str, *more: object) -> list[str]:
    return run("console-consumer", "--topic", topic, "--from-beginning", *more).stdout.split()


def test_a_group_continues_from_its_committed_offsets(run: Run, topic: str) -> None:
    run("topics", "--create", "--topic", topic)
    run("console-producer", "--topic", topic, input="1\n2\n3\n4\n")
    group = ("--group", f"group-of-{topic}")
    assert read(run, topic, *group, "--max-messages", 3) == ["1", "2", "3"]
    assert read(run, topic, *group, "--timeout-ms", 1000) == ["4"]
    assert read(run, topic, *group, "--timeout-ms", 200) == []


def test_a_group_can_be_named_by_a_property(run: Run, topic: str) -> None:
    run("console-producer", "--topic", topic, input="1\n2\n")
    named = ("--command-property", f"group.id=group-of-{topic}")
    assert read(run, topic, *named, "--max-messages", 1) == ["1"]
    assert read(run, topic, "--group", f"group-of-{topic}", "--max-messages", 1) == ["2"]


def test_groups_read_independently_of_each_other(run: Run, topic: str) -> None:
    run("console-producer", "--topic", topic, input="1\n2\n")
    for group in ("one", "other"):
        assert read(run, topic, "--group", f"{group}-of-{topic}", "--max-messages", 2) == ["1", "2"]


def test_without_a_group_a_random_one_is_joined_and_nothing_is_committed(run: Run, topic: str) -> None:
    run("console-producer", "--topic", topic, input="1\n2\n")
    before = set(run("consumer-groups", "--list").stdout.split())
    assert read(run, topic, "--max-messages", 2) == ["1", "2"]
    (group,) = set(run("consumer-groups", "--list").stdout.split()) - before
    assert re.fullmatch(r"console-consumer-\d+", group)
    assert run("consumer-groups", "--describe", "--group", group).stdout == ""


def test_a_new_group_waits_for_new_records(run: Run, topic: str) -> None:
    run("console-producer", "--topic", topic, input="old\n")
    group = ("--group", f"group-of-{topic}")
    assert run("console-consumer", "--topic", topic, *group, "--timeout-ms", 300).stdout == ""


def test_aborted_transactions_are_hidden_on_demand(run: Run, broker: Broker, topic: str) -> None:
    run("topics", "--create", "--topic", topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"writer-of-{topic}"})
    producer.init_transactions()
    for text, is_wanted in (("first", True), ("second", False), ("third", True)):
        producer.begin_transaction()
        producer.produce(topic, text)
        producer.flush()
        producer.commit_transaction() if is_wanted else producer.abort_transaction()
    assert read(run, topic, "--timeout-ms", 1000) == ["first", "second", "third"]
    committed = ("--isolation-level", "read_committed")
    assert read(run, topic, *committed, "--timeout-ms", 1000) == ["first", "third"]
    partition_options = ("--partition", 0, "--max-messages", 2)
    assert read(run, topic, *committed, *partition_options) == ["first", "third"]
