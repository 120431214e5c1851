"""Checks of the broker and its topics before Spark starts."""

import socket
from collections.abc import Iterator

import pytest

from millrace.pipelines import Pipeline, PipelineError, log
from millrace.pipelines.errors import BrokerUnavailable
from millrace.pipelines.kafka import client
from millrace.pipelines.run import preflight
from millrace.testing import Broker

from ..log_client import create


def reading(*topics: str, pattern: bool = False) -> Pipeline:
    inputs = {topic: log.text(topic, pattern=pattern) for topic in topics}
    return Pipeline("reader", lambda **frames: frames, inputs, {"output": log.text("out")})


@pytest.fixture(scope="module", autouse=True)
def topics(broker: Broker) -> None:
    create(broker.bootstrap, "here", "there")


def test_pipelines_whose_topics_exist_pass(broker: Broker) -> None:
    preflight.check([reading("here", "there"), reading("here, there")], broker.bootstrap)


def test_missing_topic_is_named_with_its_reader_and_the_command_that_creates_it(broker: Broker) -> None:
    with pytest.raises(PipelineError) as refused:
        preflight.check([reading("here"), reading("there, nowhere")], broker.bootstrap)
    assert str(refused.value) == (
        f"reader reads nowhere, but there is no topic nowhere at {broker.bootstrap};"
        " create it with `millrace topics --create --topic nowhere`"
    )


def test_all_missing_topics_are_named_at_once(broker: Broker) -> None:
    with pytest.raises(PipelineError, match=r"there are no topics a, b at .*--topic a; .*--topic b$"):
        preflight.check([reading("b", "here", "a")], broker.bootstrap)


def test_pattern_may_match_nothing_yet(broker: Broker) -> None:
    preflight.check([reading("later-.*", pattern=True)], broker.bootstrap)


@pytest.fixture
def closed_port() -> Iterator[socket.socket]:
    """A port that refuses connections until it listens."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        yield server


def test_refused_connection_is_reported_at_once(
    closed_port: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The timeouts of librdkafka and of the connection would take a minute.
    monkeypatch.setattr(client, "CONNECT_SECONDS", 60)
    monkeypatch.setattr(client, "REQUEST_SECONDS", 60)
    address = f"127.0.0.1:{closed_port.getsockname()[1]}"
    with pytest.raises(BrokerUnavailable) as refused:
        preflight.check([reading("here")], address)
    assert str(refused.value) == (
        f"no broker answers ({address}: Connection refused);"
        " start one with `millrace up`, or name another with --bootstrap-server"
    )


def test_second_bootstrap_address_is_tried(broker: Broker, closed_port: socket.socket) -> None:
    preflight.check([reading("here")], f"127.0.0.1:{closed_port.getsockname()[1]}, {broker.bootstrap}")


def test_wait_ends_when_the_broker_listens_and_reports_the_wait_once(closed_port: socket.socket) -> None:
    waits = []

    def start(problem: BrokerUnavailable) -> None:
        waits.append(str(problem))
        closed_port.listen()

    preflight.wait_for_broker(f"127.0.0.1:{closed_port.getsockname()[1]}", start)
    assert len(waits) == 1
    assert "Connection refused" in waits[0]


@pytest.mark.parametrize(
    ("address", "parsed"),
    [
        ("host:1234", ("host", 1234)),
        ("host", ("host", 9092)),
        ("[::1]:1234", ("::1", 1234)),
        ("[::1]", ("::1", 9092)),
    ],
)
def test_addresses(address: str, parsed: tuple[str, int]) -> None:
    assert client._host_and_port(address) == parsed


@pytest.mark.parametrize("address", ["host:port", "host:0", "host:70000", "host:"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(PipelineError, match="is not the address of a broker; write host:port"):
        client.require_reachable(address)
