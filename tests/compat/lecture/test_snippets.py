"""The snippets of a Kafka lecture run unchanged against localhost:9092, except that they do not sleep."""

import builtins
import json
import re
import socket
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message

from millrace.testing import Broker

from ..confluent.clients import Clients

LECTURE_PORT = 9092
SNIPPETS = dict(
    re.findall(
        r"^## (.+?)\n\n```python\n(.*?)```",
        Path(__file__).with_name("snippets.md").read_text(),
        flags=re.MULTILINE | re.DOTALL,
    )
)


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A broker on the lecture's port, or on another one if that is in use."""
    port = LECTURE_PORT if is_free(LECTURE_PORT) else 0
    with Broker({"listeners": f"PLAINTEXT://127.0.0.1:{port}"}) as broker:
        yield broker


def is_free(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) != 0


class Session:
    """A student's Python session: snippets run one after the other and see each other's names."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.names: dict[str, Any] = {"__builtins__": vars(builtins) | {"__import__": import_without_sleep}}

    def run(self, *titles: str) -> None:
        for title in titles:
            exec(SNIPPETS[title].replace(f":{LECTURE_PORT}", f":{self._broker.port}"), self.names)

    def be_impatient(self) -> None:
        """Let the consumer wait one second for more records, where the lecture waits longer or forever."""
        self.names["consumer"].config["consumer_timeout_ms"] = 1000

    def stored(self, topic: str, count: int) -> list[Message]:
        """The content of the topic, read with another client."""
        clients = Clients(self._broker)
        messages = clients.read(clients.consumer(topic), count)
        clients.close()
        return messages


def import_without_sleep(name: str, *rest: Any) -> types.ModuleType:
    if name == "time":
        awake = types.ModuleType("time")
        awake.__dict__.update(vars(time), sleep=lambda seconds: None)
        return awake
    return __import__(name, *rest)


@pytest.fixture
def session(broker: Broker) -> Session:
    return Session(broker)


def test_the_simple_consumer_prints_what_the_simple_producer_sent(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    session.run("Simple producer", "Simple consumer")
    assert capsys.readouterr().out == "sample3:0:0: key=None value=b'a_value'\n"


def test_a_producer_is_connected_by_a_function(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    session.run("Create a producer", "Close the producer", "Connect with exceptions handled")
    session.names["producer"] = session.names["connect_kafka_producer"]()
    session.run("Send a value", "Close the producer")
    assert len(session.stored("test", 1)) == 1
    assert capsys.readouterr().out == ""


def test_values_are_sent_in_every_form(session: Session) -> None:
    session.run(
        "Create a producer",
        "Send a value",
        "Send a value with a key",
        "Send a string",
        "Send an int",
        "Close the producer",
    )
    assert [(message.key(), message.value()) for message in session.stored("test", 4)] == [
        (None, b"a_value"),
        (b"a_key", b"a_value"),
        (None, b"a_string_value"),
        (None, bytes(5)),
    ]


@pytest.mark.filterwarnings("ignore:value_serializer does not implement")
def test_json_is_sent(session: Session) -> None:
    session.run("Send JSON", "Close the producer")
    numbers = [json.loads(message.value())["number"] for message in session.stored("test", 1000)]
    assert numbers == list(range(1000))


def test_a_blocking_send_returns_partition_and_offset(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    session.run("Create a producer", "Send a value", "Wait for the acknowledgement", "Close the producer")
    assert capsys.readouterr().out == "test\n0\n1\n"


def test_a_message_is_published_by_a_function(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    session.run("Create a producer", "Publish with a function")
    session.names["publish_message"](session.names["producer"], "test", "key", "value")
    session.run("Close the producer")
    assert capsys.readouterr().out == "Message published successfully.\n"
    (message,) = session.stored("test", 1)
    assert (message.key(), message.value()) == (b"key", b"value")


def test_a_consumer_in_a_group_continues_where_it_was(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        session.run("Create a producer", "Send a value", "Close the producer", "Create a consumer in a group")
        session.be_impatient()
        session.run("Retrieve messages", "Close the consumer")
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["test:0:0: key=None value=b'a_value'", "test:0:1: key=None value=b'a_value'"]


@pytest.mark.filterwarnings("ignore:value_.*serializer does not implement")
def test_json_is_read_in_a_group(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    session.run("Send JSON", "Close the producer", "Create a consumer that reads JSON")
    # The lecture decodes a value that its deserializer has decoded already, with a module it did not import.
    session.names["json"] = types.SimpleNamespace(loads=lambda value: value)
    session.be_impatient()
    session.run("Retrieve JSON", "Close the consumer")
    assert capsys.readouterr().out.splitlines() == [str({"number": number}) for number in range(1000)]
