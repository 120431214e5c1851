"""The clients that people use: paho-mqtt, aiomqtt and gmqtt, over TCP and TLS, with and without passwords."""

import asyncio
import contextlib
import queue
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiomqtt
import gmqtt
import paho.mqtt.client as paho
import pytest
import trustme
import websockets.exceptions
import websockets.sync.client
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties

from millrace.mqtt.packets import packets as p
from millrace.mqtt.packets.encoding import encode
from millrace.mqtt.packets.packets import Version
from millrace.mqtt.packets.reasons import Reason
from millrace.mqtt.passwords import PasswordFile, PasswordFileError, read_passwords, set_password
from millrace.mqtt.settings import Settings
from millrace.mqtt.websocket import is_own_page
from millrace.testing import Broker

from .raw_client import RawClient
from .serving import HOST, RunningServer, running

SECONDS = 60
MOSQUITTO_USER = (
    "ada:$7$101$OpKm+zV8eRdQd8GJ$R3xqthL3/XW1FggrjKCVb+jHX7No4oTJ3AW/ouRF7W6I8fInnhIfgCRxxMe/x9"
    "Me7kS2N3ncxCpxjs7Iq9T3Hw==\n"
)


class Paho:
    """A paho client that queues what it receives."""

    def __init__(
        self, port: int, client_id: str, protocol: int, *, transport: Any = "tcp", **tls: Any
    ) -> None:
        self.messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self._events: queue.Queue[Any] = queue.Queue()
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id, protocol=protocol, transport=transport
        )
        self.client.on_connect = lambda client, data, flags, reason, properties: self._events.put(reason)
        self.client.on_subscribe = lambda client, data, packet_id, reasons, properties: self._events.put(
            reasons
        )
        self.client.on_message = lambda client, data, message: self.messages.put(message)
        if tls:
            self.client.tls_set_context(tls["context"])
        self.client.connect(HOST, port)
        self.client.loop_start()
        assert not self._events.get(timeout=SECONDS).is_failure

    def subscribe(self, topic_filter: str, qos: int) -> Any:
        self.client.subscribe(topic_filter, qos)
        return self._events.get(timeout=SECONDS)

    def publish(self, topic: str, payload: bytes, qos: int, **more: Any) -> None:
        """Publish a message, and wait until it is acknowledged."""
        self.client.publish(topic, payload, qos, **more).wait_for_publish(SECONDS)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.mark.parametrize("protocol", [paho.MQTTv311, paho.MQTTv5])
def test_paho(server: RunningServer, name: str, protocol: int) -> None:
    client = Paho(server.port, name, protocol)
    client.publish(f"{name}/retained", b"kept", 1, retain=True)
    client.subscribe(f"{name}/#", 2)
    retained = client.messages.get(timeout=SECONDS)
    assert (retained.topic, retained.payload, retained.retain) == (f"{name}/retained", b"kept", True)
    for qos in (0, 1, 2):
        for number in range(20):
            client.publish(f"{name}/{qos}", b"%d" % number, qos)
        found = [client.messages.get(timeout=SECONDS) for _ in range(20)]
        assert [(int(m.payload), m.qos) for m in found] == [(number, qos) for number in range(20)]
    client.close()


def test_paho_with_user_properties(server: RunningServer, name: str) -> None:
    client = Paho(server.port, name, paho.MQTTv5)
    client.subscribe(name, 1)
    properties = PahoProperties(PacketTypes.PUBLISH)
    properties.UserProperty = [("a", "1"), ("b", "2")]
    properties.ContentType = "text/plain"
    client.publish(name, b"x", 1, properties=properties)
    received = client.messages.get(timeout=SECONDS).properties
    assert received is not None
    assert received.UserProperty == [("a", "1"), ("b", "2")]
    assert received.ContentType == "text/plain"
    client.close()


async def test_aiomqtt(server: RunningServer, name: str) -> None:
    async with (
        asyncio.timeout(SECONDS),
        aiomqtt.Client(
            HOST, server.port, identifier=f"{name}-in", protocol=aiomqtt.ProtocolVersion.V5
        ) as reader,
        aiomqtt.Client(HOST, server.port, identifier=f"{name}-out") as writer,
    ):
        await reader.subscribe(f"{name}/+", qos=2)
        for number in range(10):
            await writer.publish(f"{name}/{number}", str(number), qos=number % 3)
        found: dict[str, str] = {}
        async for message in reader.messages:
            assert isinstance(message.payload, bytes)
            found[message.topic.value] = message.payload.decode()
            if len(found) == 10:
                break
        assert found == {f"{name}/{number}": str(number) for number in range(10)}


async def test_gmqtt(server: RunningServer, name: str) -> None:
    received: asyncio.Queue[tuple[str, bytes, int, dict[str, Any]]] = asyncio.Queue()
    subscribed = asyncio.Event()
    client = gmqtt.Client(name)
    client.on_message = lambda client, topic, payload, qos, extra: received.put_nowait(
        (topic, payload, qos, extra)
    )
    client.on_subscribe = lambda *_: subscribed.set()
    async with asyncio.timeout(SECONDS):
        await client.connect(HOST, server.port, version=gmqtt.constants.MQTTv50)
        client.subscribe(f"{name}/#", qos=2)
        await subscribed.wait()
        for qos in (0, 1, 2):
            client.publish(f"{name}/a", b"%d" % qos, qos=qos, user_property=("q", str(qos)))
        found = [await received.get() for _ in range(3)]
        await client.disconnect()
    assert sorted((topic, payload, qos) for topic, payload, qos, _ in found) == [
        (f"{name}/a", b"%d" % qos, qos) for qos in (0, 1, 2)
    ]
    assert found[0][3]["user_property"]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def tls_server(broker: Broker, authority: trustme.CA) -> Iterator[RunningServer]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(HOST, "localhost").configure_cert(context)
    with running(Settings(bootstrap=broker.bootstrap, name="tls"), tls=context) as server:
        yield server


def test_tls(tls_server: RunningServer, authority: trustme.CA, name: str) -> None:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    client = Paho(tls_server.port, name, paho.MQTTv5, context=context)
    client.subscribe(name, 1)
    client.publish(name, b"x" * 100_000, 1)
    assert client.messages.get(timeout=SECONDS).payload == b"x" * 100_000
    client.close()


def test_a_plain_client_at_the_tls_port_harms_no_other(
    tls_server: RunningServer, authority: trustme.CA, name: str
) -> None:
    with socket.create_connection((HOST, tls_server.port), SECONDS) as plain:
        plain.sendall(encode(p.Connect(name), Version.V5))
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while data := plain.recv(100):
                received += data
        # Nothing, or an alert of TLS, and not CONNACK.
        assert received[:1] in (b"", b"\x15")
    test_tls(tls_server, authority, f"{name}-after")


def test_only_users_of_the_password_file_are_let_in(broker: Broker, name: str, tmp_path: Path) -> None:
    path = tmp_path / "users"
    set_password(path, "ada", "right")
    set_password(path, "bob", "old")
    set_password(path, "bob", "new")
    assert set(read_passwords(path)) == {"ada", "bob"}
    assert path.stat().st_mode & 0o077 == 0
    settings = Settings(bootstrap=broker.bootstrap, name=name)
    with running(settings, authenticator=PasswordFile(path)) as server:
        for username, password, expected in (
            ("ada", b"right", Reason.SUCCESS),
            ("bob", b"new", Reason.SUCCESS),
            ("ada", b"wrong", Reason.BAD_USER_NAME_OR_PASSWORD),
            ("bob", b"old", Reason.BAD_USER_NAME_OR_PASSWORD),
            ("eve", b"right", Reason.BAD_USER_NAME_OR_PASSWORD),
            (None, None, Reason.NOT_AUTHORIZED),
        ):
            for version in Version:
                with RawClient(server.port, version=version) as client:
                    client.send(p.Connect(name, version, username=username, password=password))
                    assert client.expect(p.Connack).reason is expected
        assert server.counters.logins_failed == 8


def test_a_password_file_of_mosquitto_is_understood(tmp_path: Path) -> None:
    path = tmp_path / "users"
    # Written by mosquitto_passwd 2.0.11 for the password "secret".
    path.write_text(MOSQUITTO_USER)
    assert read_passwords(path)["ada"].matches(b"secret")
    assert not read_passwords(path)["ada"].matches(b"Secret")


@pytest.mark.parametrize("line", ["ada:secret", "ada:$6$abc$def", "ada:$7$0$YQ==$YQ==", "ada:$7$101$!$YQ=="])
def test_a_password_file_in_another_format_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "users"
    path.write_text(line)
    with pytest.raises(PasswordFileError, match="line 1"):
        read_passwords(path)


@pytest.fixture(scope="module")
def ws_server(broker: Broker) -> Iterator[RunningServer]:
    settings = Settings(bootstrap=broker.bootstrap, name="ws")
    with running(settings, is_websocket=True, origins=("https://shop.example",)) as server:
        yield server


def test_paho_over_websockets(ws_server: RunningServer, name: str) -> None:
    client = Paho(ws_server.port, name, paho.MQTTv5, transport="websockets")
    client.subscribe(name, 2)
    payload = bytes(range(256)) * 1000
    for qos in (0, 1, 2):
        client.publish(name, payload, qos)
        assert client.messages.get(timeout=SECONDS).payload == payload
    client.close()


@pytest.mark.parametrize(
    ("origin", "expected"),
    [(None, True), ("https://shop.example", True), ("https://evil.example", False), ("null", False)],
)
def test_pages_of_other_sites_cannot_use_the_websocket(
    ws_server: RunningServer, origin: str | None, expected: bool
) -> None:
    address = f"ws://{HOST}:{ws_server.port}"
    connecting = websockets.sync.client.connect
    if not expected:
        with pytest.raises(websockets.exceptions.InvalidStatus, match="403"):
            connecting(address, origin=origin, subprotocols=["mqtt"])
        return
    with connecting(address, origin=origin, subprotocols=["mqtt"]) as page:
        data = encode(p.Connect("page"), Version.V5)
        # A packet may span frames.
        page.send(data[:5])
        page.send(data[5:])
        assert page.recv(SECONDS)[0] == 0x20


def test_a_name_that_leads_here_by_rebinding_is_not_ours() -> None:
    assert is_own_page("http://127.0.0.1:8884", "127.0.0.1:8884")
    assert is_own_page("http://localhost:8884", "localhost:8884")
    assert not is_own_page("http://evil.example:8884", "evil.example:8884")
    assert not is_own_page("http://evil.example", "127.0.0.1:8884")


@pytest.mark.parametrize("first", ["text", b"\xff\xff\xff\xff\xff", "no subprotocol"])
def test_a_bad_websocket_is_closed(ws_server: RunningServer, name: str, first: str | bytes) -> None:
    address = f"ws://{HOST}:{ws_server.port}"
    if first == "no subprotocol":
        with pytest.raises(websockets.exceptions.InvalidStatus):
            websockets.sync.client.connect(address)
    else:
        with (
            websockets.sync.client.connect(address, subprotocols=["mqtt"]) as bad,
            pytest.raises(websockets.exceptions.ConnectionClosed),
        ):
            bad.send(first)
            bad.recv(SECONDS)
    test_paho_over_websockets(ws_server, name)
