import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from millrace.cli.client import Client, Connection, connected, parse_addresses
from millrace.cli.errors import CommandError
from millrace.cli.options import Target
from millrace.errors import Error
from millrace.testing import Broker, free_port
from millrace.wire.frames import encode_response, read_request_header
from millrace.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from millrace.wire.messages.create_topics import CreateTopicsRequest
from millrace.wire.messages.metadata import MetadataRequest


@contextmanager
def server(answer: Callable[[bytes], bytes | None]) -> Iterator[int]:
    """A server for one connection; an answer of None closes it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                while size := connection.recv(4, socket.MSG_WAITALL):
                    frame = connection.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL)
                    reply = answer(frame)
                    if reply is None:
                        return
                    connection.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(5)


def test_no_broker_is_said_in_one_line_with_what_to_do() -> None:
    port = free_port()
    with pytest.raises(CommandError) as error:
        Client(Target(f"localhost:{port}", {}))
    assert error.value.message == (
        f"no broker at localhost:{port}: connection refused; start one with `millrace up`"
    )


def test_the_next_bootstrap_address_is_tried(broker: Broker) -> None:
    with connected(Target(f"127.0.0.1:{free_port()},{broker.bootstrap}", {})) as client:
        assert client.bootstrap.address == broker.bootstrap


def test_an_unknown_host_name_is_named() -> None:
    with pytest.raises(CommandError, match="the host name does not resolve"):
        Client(Target("no-such-host.invalid:9092", {}))


def test_a_port_that_is_no_brokers_is_recognised() -> None:
    with server(lambda frame: None) as port, pytest.raises(CommandError, match="is it a Kafka broker's port"):
        Connection("127.0.0.1", port)


def test_an_older_broker_is_asked_again_in_version_0() -> None:
    asked = []

    def answer(frame: bytes) -> bytes:
        header, _ = read_request_header(frame)
        asked.append(header.api_version)
        error = Error.NONE if header.api_version == 0 else Error.UNSUPPORTED_VERSION
        response = ApiVersionsResponse(
            error_code=error, api_keys=[ApiVersion(api_key=3, min_version=0, max_version=5)]
        )
        return b"".join(encode_response(response, 0, header.correlation_id))

    with server(answer) as port:
        connection = Connection("127.0.0.1", port)
        assert asked == [4, 0]
        assert connection.api_versions == {3: (0, 5)}
        assert connection.offers(MetadataRequest)
        assert not connection.offers(CreateTopicsRequest)
        with pytest.raises(CommandError, match="does not speak CreateTopics"):
            connection.send(CreateTopicsRequest(), CreateTopicsRequest.response)
        connection.close()


def test_a_broker_that_is_not_there_is_named(broker: Broker) -> None:
    with connected(Target(broker.bootstrap, {})) as client, pytest.raises(CommandError, match="no broker 99"):
        client.broker(99)


def test_a_secured_cluster_is_refused_for_now(broker: Broker) -> None:
    with pytest.raises(CommandError, match="SASL_SSL is not supported"):
        Client(Target(broker.bootstrap, {"security.protocol": "SASL_SSL"}))


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost", [("localhost", 9092)]),
        ("a:1, b:2", [("a", 1), ("b", 2)]),
        ("[::1]:9092", [("::1", 9092)]),
    ],
)
def test_addresses_are_read(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_addresses(text) == addresses


@pytest.mark.parametrize("text", ["host:port", "host:0", "host:70000", "a:1,b:"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="is not an address"):
        parse_addresses(text)
