"""A small synchronous client for the administrative commands, over our own wire declarations."""

import itertools
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from millrace import __version__
from millrace.cli.errors import CommandError, check
from millrace.cli.options import Target
from millrace.errors import Error, KafkaError
from millrace.wire.frames import encode_request, read_response
from millrace.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millrace.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from millrace.wire.schema import Request, Response

R = TypeVar("R", bound=Response)

DEFAULT_PORT = 9092
CONNECT_SECONDS = 10.0
REQUEST_SECONDS = 60.0
CLIENT_ID = "millrace-cli"


class Connection:
    """One broker, asked one thing at a time, in the highest version both sides speak."""

    def __init__(
        self, host: str, port: int, *, client_id: str = CLIENT_ID, timeout_seconds: float = REQUEST_SECONDS
    ) -> None:
        self.address = f"{host}:{port}"
        self._client_id = client_id
        self._correlation_ids = itertools.count(1)
        self._socket = _connect(host, port)
        self._socket.settimeout(timeout_seconds)
        self.api_versions = self._negotiate()

    def close(self) -> None:
        self._socket.close()

    def offers(self, request: type[Request]) -> bool:
        """Whether the broker speaks a version of this request that we speak too."""
        return self.best_version(request) is not None

    def send(self, request: Request, expect: type[R], highest: int | None = None) -> R:
        """Send a request, in a version up to `highest` if one is given, and wait for its response."""
        version = self.best_version(type(request), highest)
        if version is None:
            name = type(request).__name__.removesuffix("Request")
            raise CommandError(
                f"the broker at {self.address} does not speak {name}; it is too old for this command"
            )
        return self._exchange(request, version, expect)

    def best_version(self, request: type[Request], highest: int | None = None) -> int | None:
        """The highest version that both sides speak, up to `highest` if one is given."""
        their_lowest, their_highest = self.api_versions.get(request.api_key, (0, -1))
        best = min(their_highest, request.versions[-1] if highest is None else highest)
        return best if best >= max(their_lowest, request.versions[0]) else None

    def _negotiate(self) -> dict[int, tuple[int, int]]:
        request = ApiVersionsRequest(client_software_name="millrace", client_software_version=__version__)
        try:
            response = self._exchange(request, request.versions[-1], ApiVersionsResponse)
        except KafkaError as error:
            if error.error is not Error.UNSUPPORTED_VERSION:
                raise
            # An older broker answers in version 0, saying only that it does not know the one asked for.
            response = self._exchange(request, 0, ApiVersionsResponse)
        check(response.error_code)
        return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def _exchange(self, request: Request, version: int, expect: type[R]) -> R:
        correlation_id = next(self._correlation_ids)
        try:
            self._socket.sendall(encode_request(request, version, correlation_id, self._client_id))
            size = int.from_bytes(self._read(4), "big")
            frame = self._read(size)
        except TimeoutError:
            raise CommandError(f"the broker at {self.address} did not answer in time") from None
        except OSError as error:
            raise CommandError(f"lost the connection to {self.address}: {error.strerror or error}") from error
        if expect is ApiVersionsResponse and frame[4:6] == Error.UNSUPPORTED_VERSION.to_bytes(2, "big"):
            raise KafkaError(Error.UNSUPPORTED_VERSION)
        _, response = read_response(expect, version, frame)
        return response

    def _read(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            chunk = self._socket.recv(size - len(received))
            if not chunk:
                raise CommandError(f"{self.address} closed the connection; is it a Kafka broker's port?")
            received += chunk
        return bytes(received)


class Client:
    """A cluster, reached through the first bootstrap broker that answers."""

    def __init__(self, target: Target, *, timeout_seconds: float = REQUEST_SECONDS) -> None:
        protocol = target.properties.get("security.protocol", "PLAINTEXT").upper()
        if protocol != "PLAINTEXT":
            raise CommandError(
                f"security.protocol={protocol} is not supported by this command yet; use PLAINTEXT"
            )
        self._client_id = target.properties.get("client.id", CLIENT_ID)
        self.timeout_seconds = timeout_seconds
        self._connections: dict[int, Connection] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self.bootstrap = self._first_that_answers(target.bootstrap)

    def _first_that_answers(self, bootstrap: str) -> Connection:
        errors = []
        for host, port in parse_addresses(bootstrap):
            try:
                return self._connect(host, port)
            except CommandError as error:
                errors.append(error.message)
        raise CommandError("; ".join(errors))

    def close(self) -> None:
        self.bootstrap.close()
        for connection in self._connections.values():
            connection.close()

    def send(self, request: Request, expect: type[R]) -> R:
        """Ask any broker."""
        return self.bootstrap.send(request, expect)

    def broker(self, node_id: int) -> Connection:
        """The connection to a certain broker of the cluster."""
        if node_id not in self._connections:
            if node_id not in self._addresses:
                self.metadata([])
            if node_id not in self._addresses:
                raise CommandError(f"there is no broker {node_id}; the brokers are {sorted(self._addresses)}")
            host, port = self._addresses[node_id]
            self._connections[node_id] = self._connect(host, port)
        return self._connections[node_id]

    def _connect(self, host: str, port: int) -> Connection:
        return Connection(host, port, client_id=self._client_id, timeout_seconds=self.timeout_seconds)

    def send_to_controller(self, request: Request, expect: type[R]) -> R:
        """Ask the broker that changes the cluster's metadata."""
        controller_id = self.metadata([]).controller_id
        connection = self.bootstrap if controller_id < 0 else self.broker(controller_id)
        return connection.send(request, expect)

    def metadata(self, topics: list[str] | None = None, *, create: bool = False) -> MetadataResponse:
        """Brokers and the given topics, or all topics; `create` lets the broker create missing ones."""
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        response = self.send(
            MetadataRequest(topics=asked, allow_auto_topic_creation=create), MetadataResponse
        )
        self._addresses = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        return response

    def topics(self, *, exclude_internal: bool = False) -> dict[str, MetadataResponseTopic]:
        """Every topic by name, in order of names."""
        found = {topic.name: topic for topic in self.metadata().topics if topic.name is not None}
        return {
            name: found[name] for name in sorted(found) if not (exclude_internal and found[name].is_internal)
        }


@contextmanager
def connected(target: Target, *, timeout_seconds: float = REQUEST_SECONDS) -> Iterator[Client]:
    """A client for the length of a command."""
    client = Client(target, timeout_seconds=timeout_seconds)
    try:
        yield client
    finally:
        client.close()


def parse_addresses(bootstrap: str) -> list[tuple[str, int]]:
    """`host:port,host:port`; the port may be left out."""
    addresses = []
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        if not host:
            host, port = port, str(DEFAULT_PORT)
        if not port.isdecimal() or not 0 < int(port) < 65536:
            raise CommandError(f"{address.strip()!r} is not an address; write host:port")
        addresses.append((host.strip("[]"), int(port)))
    return addresses


def _connect(host: str, port: int) -> socket.socket:
    try:
        connection = socket.create_connection((host, port), timeout=CONNECT_SECONDS)
    except ConnectionRefusedError:
        raise CommandError(
            f"no broker at {host}:{port}: connection refused; start one with `millrace up`"
        ) from None
    except socket.gaierror:
        raise CommandError(
            f"no broker at {host}:{port}: the host name does not resolve; check --bootstrap-server"
        ) from None
    except TimeoutError:
        raise CommandError(f"no broker at {host}:{port}: no answer within {CONNECT_SECONDS:.0f} s") from None
    except OSError as error:
        raise CommandError(f"no broker at {host}:{port}: {error.strerror or error}") from None
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
