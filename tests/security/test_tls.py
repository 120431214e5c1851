"""Encrypted listeners, with real clients."""

from __future__ import annotations

import asyncio
import datetime
import os
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer

from millrace.api.context import Context
from millrace.api.dispatch import Handler
from millrace.broker import StartupError
from millrace.testing import Broker

from .certificates import PASSWORD, Authority
from .listeners import address_of, port_of

PATIENCE_SECONDS = 30
RECORD = os.urandom(300_000)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[Broker]:
    properties = {
        "listeners": "SSL://127.0.0.1:0,MUTUAL://127.0.0.1:0,STORE://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "SSL:SSL,MUTUAL:SSL,STORE:SSL,PLAINTEXT:PLAINTEXT",
        "ssl.keystore.location": str(authority.pem("broker", "127.0.0.1", "localhost")),
        "ssl.truststore.location": str(authority.ca_file),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=([^,]+),.*$/$1/U,DEFAULT",
        "listener.name.store.ssl.keystore.type": "PKCS12",
        "listener.name.store.ssl.keystore.location": str(authority.pkcs12("store", "127.0.0.1")),
        "listener.name.store.ssl.keystore.password": PASSWORD,
        "listener.name.store.ssl.enabled.protocols": "TLSv1.2",
        "listener.name.store.ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    }
    with Broker(properties) as broker:
        yield broker


def handshake(port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    """A TLS connection. With TLS 1.3 a server refuses a client's certificate after the handshake."""
    raw = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
    return context.wrap_socket(raw, server_hostname="127.0.0.1")


def test_confluent_produces_and_consumes(broker: Broker, authority: Authority) -> None:
    settings = {
        "bootstrap.servers": address_of(broker, "SSL"),
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.ca_file),
    }
    producer = Producer(settings)
    for _ in range(20):
        producer.produce("confluent-tls", RECORD)
    assert producer.flush(PATIENCE_SECONDS) == 0
    consumer = Consumer(settings | {"group.id": "tls", "auto.offset.reset": "earliest"})
    consumer.subscribe(["confluent-tls"])
    records = []
    while len(records) < 20:
        record = consumer.poll(PATIENCE_SECONDS)
        assert record is not None and record.error() is None
        records.append(record.value())
    consumer.close()
    assert records == [RECORD] * 20


def test_kafka_python_produces_and_consumes(broker: Broker, authority: Authority) -> None:
    settings = {
        "bootstrap_servers": address_of(broker, "STORE"),
        "security_protocol": "SSL",
        "ssl_cafile": str(authority.ca_file),
    }
    producer = KafkaProducer(**settings)
    producer.send("kafka-python-tls", RECORD).get(PATIENCE_SECONDS)
    producer.close()
    consumer = KafkaConsumer(
        "kafka-python-tls",
        auto_offset_reset="earliest",
        consumer_timeout_ms=PATIENCE_SECONDS * 1000,
        **settings,
    )
    assert next(consumer).value == RECORD
    consumer.close()


async def test_aiokafka_produces_and_consumes(broker: Broker, authority: Authority) -> None:
    settings = {
        "bootstrap_servers": address_of(broker, "MUTUAL"),
        "security_protocol": "SSL",
        "ssl_context": authority.client_context(authority.pem("aiokafka")),
    }
    async with AIOKafkaProducer(**settings) as producer:
        await producer.send_and_wait("aiokafka-tls", RECORD)
    async with AIOKafkaConsumer("aiokafka-tls", auto_offset_reset="earliest", **settings) as consumer:
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert (await consumer.getone()).value == RECORD


def test_each_listener_has_its_own_protocol(broker: Broker) -> None:
    metadata = AdminClient({"bootstrap.servers": address_of(broker, "PLAINTEXT")}).list_topics(timeout=30)
    (found,) = metadata.brokers.values()
    assert found.port == port_of(broker, "PLAINTEXT")


def test_a_client_without_a_certificate_is_refused(broker: Broker, authority: Authority) -> None:
    connection = handshake(port_of(broker, "MUTUAL"), authority.client_context())
    with connection, pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
        connection.recv(1)


def test_a_certificate_of_another_authority_is_refused(
    broker: Broker, authority: Authority, tmp_path: Path
) -> None:
    context = authority.client_context(Authority(tmp_path).pem("stranger"))
    with handshake(port_of(broker, "MUTUAL"), context) as connection, pytest.raises(ssl.SSLError):
        connection.recv(1)


def test_an_expired_certificate_is_refused(broker: Broker, authority: Authority) -> None:
    yesterday = datetime.datetime.now() - datetime.timedelta(days=1)
    context = authority.client_context(authority.pem("expired", not_after=yesterday))
    connection = handshake(port_of(broker, "MUTUAL"), context)
    with connection, pytest.raises(ssl.SSLError, match="EXPIRED"):
        connection.recv(1)


def test_only_the_enabled_version_and_suite_are_offered(broker: Broker, authority: Authority) -> None:
    with handshake(port_of(broker, "STORE"), authority.client_context()) as connection:
        assert connection.version() == "TLSv1.2"
        assert connection.cipher()[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"
    newest = authority.client_context()
    newest.minimum_version = ssl.TLSVersion.TLSv1_3
    with pytest.raises(ssl.SSLError):
        handshake(port_of(broker, "STORE"), newest)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_old_versions_of_tls_are_refused(broker: Broker, authority: Authority) -> None:
    oldest = authority.client_context()
    oldest.minimum_version = oldest.maximum_version = ssl.TLSVersion.TLSv1_1
    oldest.set_ciphers("DEFAULT@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        handshake(port_of(broker, "SSL"), oldest)


@pytest.mark.parametrize(
    "sent", [b"\x00\x00\x00\x0c" + bytes(12), b"GET / HTTP/1.1\r\n\r\n", os.urandom(500)]
)
def test_bytes_that_are_no_handshake_close_the_connection(broker: Broker, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port_of(broker, "SSL")), timeout=PATIENCE_SECONDS) as raw:
        # The broker may have closed the connection before all is sent.
        with suppress(OSError):
            raw.sendall(sent)
            # Some bytes look like the beginning of a longer handshake.
            raw.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):
            while raw.recv(1000):
                pass


def test_a_changed_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    old, new = (Authority(_directory(tmp_path / name)) for name in ("old", "new"))
    keystore = old.pem("broker", "127.0.0.1")
    with Broker({"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(keystore)}) as broker:
        handshake(broker.port, old.client_context()).close()
        # A file that is being written, or is wrong, changes nothing.
        keystore.write_bytes(b"-----BEGIN")
        new.pem("broker", "127.0.0.1").replace(keystore)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not _trusts(broker.port, new):
            assert time.monotonic() < deadline, "the certificate is still the old one"
            time.sleep(0.05)


def _directory(path: Path) -> Path:
    path.mkdir()
    return path


def _trusts(port: int, authority: Authority) -> bool:
    try:
        handshake(port, authority.client_context()).close()
    except ssl.SSLError:
        return False
    return True


def test_the_principal_is_mapped_from_the_certificate(broker: Broker, authority: Authority) -> None:
    seen = []

    def remember(ctx: Context, handler: Handler, request: Any) -> Any:
        seen.append(ctx.session.principal.name)
        return handler.handle(ctx, request)

    certificate = authority.pem("named", common_name="ada")
    broker.on("ListGroups", remember)
    try:
        for listener in ("MUTUAL", "SSL"):
            admin = AdminClient(
                {
                    "bootstrap.servers": address_of(broker, listener),
                    "security.protocol": "SSL",
                    "ssl.ca.location": str(authority.ca_file),
                    "ssl.certificate.location": str(certificate),
                    "ssl.key.location": str(certificate),
                }
            )
            admin.list_consumer_groups(request_timeout=PATIENCE_SECONDS).result()
    finally:
        broker.clear_faults()
    assert seen == ["ADA", "ANONYMOUS"]


def test_a_damaged_keystore_stops_the_start(authority: Authority, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.pem"
    damaged.write_bytes(b"-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n")
    broker = Broker({"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(damaged)})
    with pytest.raises(StartupError, match="listener SSL: the keystore must hold a private key"):
        broker.start()
    wrong_password = {"ssl.keystore.location": str(authority.pkcs12("p", "x")), "ssl.keystore.password": "no"}
    with pytest.raises(StartupError, match="its password is wrong") as refusal:
        Broker({"listeners": "SSL://127.0.0.1:0"} | wrong_password).start()
    assert str(refusal.value) != "no"
