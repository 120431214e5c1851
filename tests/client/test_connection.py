"""One connection, to a real broker and to servers that misbehave."""

import asyncio
import socket
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from millrace.client import (
    Address,
    ApiNotOffered,
    BrokerUnreachable,
    Connection,
    ConnectionLost,
    ResponseTimeout,
    Security,
    parse_addresses,
)
from millrace.errors import Error, KafkaError
from millrace.testing import Broker, ManualClock, delay, drop, free_port
from millrace.testing.timers import ManualTimers
from millrace.wire.frames import encode_response, read_request_header
from millrace.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from millrace.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from millrace.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from millrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(autouse=True)
def no_faults(broker: Broker) -> Iterator[None]:
    yield
    broker.clear_faults()


def address_of(broker: Broker) -> Address:
    return parse_addresses(broker.bootstrap)[0]


@asynccontextmanager
async def connected(broker: Broker) -> AsyncIterator[Connection]:
    connection = await Connection.open(address_of(broker), timeout_seconds=30)
    yield connection
    connection.close()


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[Address]:
    async def and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(and_close, "127.0.0.1", 0)
    try:
        yield Address("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


def naming(topic: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)


async def test_a_request_is_sent_in_the_highest_common_version(broker: Broker) -> None:
    async with connected(broker) as connection:
        assert connection.version_of(MetadataRequest) == MetadataRequest.versions[-1]
        assert connection.version_of(MetadataRequest, highest=4) == 4
        response = await connection.send(naming("absent"), MetadataResponse)
        assert response.topics[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


async def test_requests_under_way_together_get_their_own_responses(broker: Broker) -> None:
    names = [f"topic-{number}" for number in range(100)]
    async with connected(broker) as connection:
        responses = await asyncio.gather(*(connection.send(naming(name), MetadataResponse) for name in names))
    assert [response.topics[0].name for response in responses] == names


async def test_a_response_in_small_pieces_is_put_together(broker: Broker) -> None:
    async def in_pieces(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        header, _ = read_request_header(await read_frame(reader))
        response = ApiVersionsResponse(api_keys=[ApiVersion(3, 0, 13), ApiVersion(18, 0, 4)])
        for byte in b"".join(encode_response(response, header.api_version, header.correlation_id)):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)

    async with serving(in_pieces) as address:
        connection = await Connection.open(address)
        assert connection.api_versions == {3: (0, 13), 18: (0, 4)}
        connection.close()


async def test_a_cancelled_request_does_not_disturb_the_next_one(broker: Broker) -> None:
    broker.on("ListGroups", delay(0.05))
    async with connected(broker) as connection:
        abandoned = asyncio.ensure_future(connection.send(ListGroupsRequest(), ListGroupsResponse))
        await asyncio.sleep(0)
        abandoned.cancel()
        response = await connection.send(naming("next"), MetadataResponse)
        assert response.topics[0].name == "next"


async def test_a_broker_that_does_not_respond_in_time_is_given_up(broker: Broker) -> None:
    broker.on("ListGroups", delay(0.5))
    clock = ManualClock()
    timers = ManualTimers(clock)
    connection = await Connection.open(address_of(broker), timeout_seconds=5, clock=clock, timers=timers)
    timers.advance(3000)
    await connection.send(naming("in-time"), MetadataResponse)
    sent = asyncio.ensure_future(connection.send(ListGroupsRequest(), ListGroupsResponse))
    await asyncio.sleep(0)
    timers.advance(4999)
    assert connection.is_open
    timers.advance(1)
    with pytest.raises(ResponseTimeout, match=f"{broker.bootstrap} did not respond in time"):
        await sent
    assert not connection.is_open
    assert not len(timers)


async def test_a_lost_connection_fails_every_request_under_way_and_the_next(broker: Broker) -> None:
    broker.on("ListGroups", drop())
    async with connected(broker) as connection:
        sent = (connection.send(ListGroupsRequest(), ListGroupsResponse) for _ in range(3))
        failures = await asyncio.gather(*sent, return_exceptions=True)
        assert [type(failure) for failure in failures] == [ConnectionLost] * 3
        assert len({id(failure) for failure in failures}) == 3
        with pytest.raises(ConnectionLost, match="closed the connection"):
            await connection.send(naming("later"), MetadataResponse)


async def test_a_refused_connection_names_the_address_and_the_remedy() -> None:
    port = free_port()
    with pytest.raises(BrokerUnreachable) as failure:
        await Connection.open(Address("localhost", port))
    assert failure.value.message == (
        f"no broker at localhost:{port}: connection refused; start one with `millrace up`"
    )
    assert failure.value.error is Error.NETWORK_EXCEPTION


async def test_a_host_name_that_does_not_resolve_is_named() -> None:
    with pytest.raises(BrokerUnreachable, match=r"no-such-host.invalid:9092: the host name does not resolve"):
        await Connection.open(Address("no-such-host.invalid", 9092))


async def hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_frame(reader)


async def speaks_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1000)
    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 100000000\r\n\r\n")
    await reader.read()


async def claims_a_huge_response(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    header, _ = read_request_header(await read_frame(reader))
    writer.write(struct.pack(">ii", 2**31 - 1, header.correlation_id))
    await reader.read()


@pytest.mark.parametrize("serve", [hangs_up, speaks_http, claims_a_huge_response])
async def test_a_port_without_a_kafka_broker_is_recognized_at_once(serve: Serve) -> None:
    async with serving(serve) as address:
        with pytest.raises(ConnectionLost, match=r"is it a Kafka broker's port\?"):
            await Connection.open(address)


async def test_a_response_that_cannot_be_read_closes_the_connection() -> None:
    async def answers_nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        header, _ = read_request_header(await read_frame(reader))
        writer.write(struct.pack(">iihi", 10, header.correlation_id, 0, 2**31 - 1))
        await reader.read()

    async with serving(answers_nonsense) as address:
        with pytest.raises(ConnectionLost, match="sent a response that cannot be read"):
            await Connection.open(address)


async def test_an_older_broker_is_asked_again_in_version_0() -> None:
    versions = []

    async def is_old(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            header, _ = read_request_header(await read_frame(reader))
            versions.append(header.api_version)
            error = Error.NONE if header.api_version == 0 else Error.UNSUPPORTED_VERSION
            response = ApiVersionsResponse(error_code=error, api_keys=[ApiVersion(3, 0, 5)])
            writer.writelines(encode_response(response, 0, header.correlation_id))
        await reader.read()

    async with serving(is_old) as address:
        connection = await Connection.open(address)
        assert versions == [ApiVersionsRequest.versions[-1], 0]
        assert connection.offers(MetadataRequest)
        assert not connection.offers(MetadataRequest, lowest=6)
        with pytest.raises(ApiNotOffered, match="does not offer CreateTopics"):
            await connection.send(CreateTopicsRequest(), CreateTopicsResponse)
        with pytest.raises(ApiNotOffered, match="offers Metadata only up to version 5"):
            await connection.send(MetadataRequest(), MetadataResponse, lowest=6)
        connection.close()


async def test_credentials_are_sent_before_anything_else(broker: Broker) -> None:
    authenticated = []

    async def authenticate(connection: Connection) -> None:
        await connection.send(naming("while-authenticating"), MetadataResponse)
        authenticated.append(connection)

    connection = await Connection.open(address_of(broker), security=Security(authenticate=authenticate))
    assert authenticated == [connection]
    connection.close()


async def test_a_rejected_client_is_not_connected(broker: Broker) -> None:
    async def is_rejected(connection: Connection) -> None:
        raise KafkaError(Error.SASL_AUTHENTICATION_FAILED)

    with pytest.raises(KafkaError) as failure:
        await Connection.open(address_of(broker), security=Security(authenticate=is_rejected))
    assert failure.value.error is Error.SASL_AUTHENTICATION_FAILED


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for localhost, with its key in the same file."""
    directory = tmp_path_factory.mktemp("tls")
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    certificate.write_text(certificate.read_text() + key.read_text())
    return certificate


@asynccontextmanager
async def behind_tls(broker: Broker, certificate: Path) -> AsyncIterator[int]:
    """A port that ends TLS and passes everything on to the broker."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection(*address_of(broker))
        await asyncio.gather(copy(reader, to_writer), copy(to_reader, writer))

    server = await asyncio.start_server(serve, "localhost", 0, family=socket.AF_INET, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def test_a_connection_can_be_encrypted(broker: Broker, certificate: Path) -> None:
    trusting = Security(tls=ssl.create_default_context(cafile=str(certificate)))
    async with behind_tls(broker, certificate) as port:
        connection = await Connection.open(Address("localhost", port), security=trusting)
        response = await connection.send(naming("secret"), MetadataResponse)
        assert response.topics[0].name == "secret"
        connection.close()


async def test_a_certificate_that_is_not_trusted_is_rejected(broker: Broker, certificate: Path) -> None:
    async with behind_tls(broker, certificate) as port:
        with pytest.raises(BrokerUnreachable, match="certificate"):
            await Connection.open(
                Address("localhost", port), security=Security(tls=ssl.create_default_context())
            )
