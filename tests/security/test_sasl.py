"""Authentication by SASL, with real clients."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from millrace.broker import StartupError
from millrace.client import Address, Connection
from millrace.crypto.scram import BY_NAME, ScramClient
from millrace.errors import Error, KafkaError
from millrace.testing import Broker
from millrace.wire.messages.metadata import MetadataRequest, MetadataResponse
from millrace.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from millrace.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

from .certificates import Authority
from .listeners import address_of, port_of

PATIENCE_SECONDS = 30
PASSWORD = "correct horse, battery=staple"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_ada="{PASSWORD}";'
KEY = ECKey.generate_key("P-256", {"kid": "mill"})


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[Broker]:
    keys = authority.directory / "keys.json"
    keys.write_text(json.dumps(KeySet([KEY]).as_dict(private=False)))
    properties = {
        "listeners": "SASL_SSL://127.0.0.1:0,BRIEF://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,BRIEF:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "ssl.keystore.location": str(authority.pem("broker", "127.0.0.1", "localhost")),
        "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS,
        "listener.name.brief.plain.sasl.jaas.config": JAAS,
        "listener.name.brief.connections.max.reauth.ms": "1000",
        "connection.failed.authentication.delay.ms": "20",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": "https://issuer.example",
        "sasl.oauthbearer.expected.audience": "mill",
    }
    with Broker(properties) as broker:
        admin = AdminClient({"bootstrap.servers": address_of(broker, "PLAINTEXT")})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            change = UserScramCredentialUpsertion(
                "ada", ScramCredentialInfo(mechanism, 4096), PASSWORD.encode()
            )
            admin.alter_user_scram_credentials([change])["ada"].result(PATIENCE_SECONDS)
        yield broker


def token(**changes: Any) -> str:
    claims = {
        "sub": "ada",
        "iss": "https://issuer.example",
        "aud": ["mill"],
        "exp": int(time.time()) + 3600,
    }
    return jwt.encode({"alg": "ES256", "kid": "mill"}, claims | changes, KEY)


class Tokens(AbstractTokenProvider):
    def token(self) -> str:
        return token()


class AioTokens(AioTokenProvider):
    async def token(self) -> str:
        return token()


mechanisms = pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])


def confluent_settings(
    broker: Broker, authority: Authority, mechanism: str, password: str = PASSWORD
) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": address_of(broker, "SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.ca_file),
        "sasl.mechanism": mechanism,
        "log_level": 0,
    }
    if mechanism == "OAUTHBEARER":
        return settings | {"oauth_cb": lambda _: (token(), time.time() + 3600)}
    return settings | {"sasl.username": "ada", "sasl.password": password}


@mechanisms
def test_confluent_authenticates(broker: Broker, authority: Authority, mechanism: str) -> None:
    settings = confluent_settings(broker, authority, mechanism)
    topic = f"confluent-{mechanism}"
    producer = Producer(settings)
    producer.produce(topic, b"hello")
    producer.poll(0)
    assert producer.flush(PATIENCE_SECONDS) == 0
    consumer = Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    record = consumer.poll(PATIENCE_SECONDS)
    assert record is not None and record.value() == b"hello"
    consumer.close()


@mechanisms
def test_kafka_python_authenticates(broker: Broker, authority: Authority, mechanism: str) -> None:
    settings = {
        "bootstrap_servers": address_of(broker, "SASL_SSL"),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(authority.ca_file),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "ada",
        "sasl_plain_password": PASSWORD,
        "sasl_oauth_token_provider": Tokens(),
    }
    topic = f"kafka-python-{mechanism}"
    producer = KafkaProducer(**settings)
    producer.send(topic, b"hello").get(PATIENCE_SECONDS)
    producer.close()
    consumer = KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=PATIENCE_SECONDS * 1000, **settings
    )
    assert next(consumer).value == b"hello"
    consumer.close()


@mechanisms
async def test_aiokafka_authenticates(broker: Broker, authority: Authority, mechanism: str) -> None:
    settings = {
        "bootstrap_servers": address_of(broker, "SASL_SSL"),
        "security_protocol": "SASL_SSL",
        "ssl_context": authority.client_context(),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "ada",
        "sasl_plain_password": PASSWORD,
        "sasl_oauth_token_provider": AioTokens(),
    }
    topic = f"aiokafka-{mechanism}"
    async with AIOKafkaProducer(**settings) as producer:
        await producer.send_and_wait(topic, b"hello")
    async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer:
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert (await consumer.getone()).value == b"hello"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(("user", "password"), [("ada", "wrong"), ("nobody", PASSWORD), ("ada", "")])
async def test_a_wrong_user_and_a_wrong_password_look_the_same(
    broker: Broker, mechanism: str, user: str, password: str
) -> None:
    response = await log_in(broker, mechanism, user, password or " ")
    assert response.error_code == Error.SASL_AUTHENTICATION_FAILED
    assert response.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism "
        + mechanism
    )


async def log_in(broker: Broker, mechanism: str, user: str, password: str) -> SaslAuthenticateResponse:
    """The broker's last response to a log-in."""
    connection = await Connection.open(Address("127.0.0.1", port_of(broker, "BRIEF")))
    try:
        await connection.send(SaslHandshakeRequest(mechanism), SaslHandshakeResponse)
        if mechanism == "PLAIN":
            return await authenticate(connection, f"\0{user}\0{password}".encode())
        client = ScramClient(BY_NAME[mechanism], user, password)
        challenge = await authenticate(connection, client.first())
        return await authenticate(connection, client.final(challenge.auth_bytes))
    finally:
        connection.close()


async def authenticate(connection: Connection, message: bytes) -> SaslAuthenticateResponse:
    return await connection.send(SaslAuthenticateRequest(message), SaslAuthenticateResponse)


async def test_a_failed_log_in_ends_the_connection(broker: Broker) -> None:
    connection = await Connection.open(Address("127.0.0.1", port_of(broker, "BRIEF")))
    await connection.send(SaslHandshakeRequest("PLAIN"), SaslHandshakeResponse)
    assert (await authenticate(connection, b"\0ada\0wrong")).error_code == Error.SASL_AUTHENTICATION_FAILED
    await until_closed(connection)


async def until_closed(connection: Connection) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while connection.is_open:
            await asyncio.sleep(0.01)


async def test_other_requests_close_a_connection_that_is_not_authenticated(broker: Broker) -> None:
    connection = await Connection.open(Address("127.0.0.1", port_of(broker, "BRIEF")))
    with pytest.raises(KafkaError):
        await connection.send(MetadataRequest(topics=[]), MetadataResponse)


async def test_unknown_mechanisms_are_answered_with_the_known_ones(broker: Broker) -> None:
    connection = await Connection.open(Address("127.0.0.1", port_of(broker, "BRIEF")))
    response = await connection.send(SaslHandshakeRequest("GSSAPI"), SaslHandshakeResponse)
    connection.close()
    assert response.error_code == Error.UNSUPPORTED_SASL_MECHANISM
    assert response.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


async def test_a_session_expires_unless_the_same_user_authenticates_again(broker: Broker) -> None:
    connection = await Connection.open(Address("127.0.0.1", port_of(broker, "BRIEF")))
    for _ in range(2):
        await connection.send(SaslHandshakeRequest("PLAIN"), SaslHandshakeResponse)
        response = await authenticate(connection, f"\0ada\0{PASSWORD}".encode())
        assert (response.error_code, response.session_lifetime_ms) == (0, 1000)
        await connection.send(MetadataRequest(topics=[]), MetadataResponse)
    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(KafkaError):
            while True:
                await connection.send(MetadataRequest(topics=[]), MetadataResponse)
                await asyncio.sleep(0.05)


async def test_authenticating_again_with_another_mechanism_fails(broker: Broker) -> None:
    connection = await Connection.open(Address("127.0.0.1", port_of(broker, "BRIEF")))
    await connection.send(SaslHandshakeRequest("PLAIN"), SaslHandshakeResponse)
    await authenticate(connection, f"\0ada\0{PASSWORD}".encode())
    response = await connection.send(SaslHandshakeRequest("SCRAM-SHA-256"), SaslHandshakeResponse)
    assert response.error_code == Error.SASL_AUTHENTICATION_FAILED
    connection.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": int(time.time()) - 3600},
        {"nbf": int(time.time()) + 3600},
        {"iss": "https://other.example"},
        {"aud": "other"},
        {"sub": ""},
        {"exp": None},
    ],
)
async def test_tokens_that_do_not_fit_are_refused(broker: Broker, changes: dict[str, Any]) -> None:
    await expect_refused(broker, token(**changes))


@pytest.mark.parametrize(
    "forged",
    [
        jwt.encode({"alg": "ES256", "kid": "mill"}, {"sub": "ada"}, ECKey.generate_key("P-256")),
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ.",
        "no token",
        "",
    ],
)
async def test_forged_tokens_are_refused(broker: Broker, forged: str) -> None:
    await expect_refused(broker, forged)


async def expect_refused(broker: Broker, text: str) -> None:
    connection = await Connection.open(Address("127.0.0.1", port_of(broker, "BRIEF")))
    await connection.send(SaslHandshakeRequest("OAUTHBEARER"), SaslHandshakeResponse)
    announced = await authenticate(connection, f"n,,\x01auth=Bearer {text}\x01\x01".encode())
    assert (announced.error_code, announced.auth_bytes) == (0, b'{"status":"invalid_token"}')
    ended = await authenticate(connection, b"\x01")
    assert ended.error_code == Error.SASL_AUTHENTICATION_FAILED
    connection.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
@pytest.mark.parametrize(
    "message", [b"", b"\0", b"\xff" * 40, b"n,,n=,r=", b"n,,n=ada,r=x,m=y", b"p=tls,,n=a,r=b", b"," * 1000]
)
async def test_garbled_messages_fail_like_wrong_passwords(
    broker: Broker, mechanism: str, message: bytes
) -> None:
    connection = await Connection.open(Address("127.0.0.1", port_of(broker, "BRIEF")))
    await connection.send(SaslHandshakeRequest(mechanism), SaslHandshakeResponse)
    response = await authenticate(connection, message)
    if mechanism == "OAUTHBEARER":
        response = await authenticate(connection, b"\x01")
    assert response.error_code == Error.SASL_AUTHENTICATION_FAILED
    connection.close()


def test_credentials_are_described_and_deleted(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": address_of(broker, "PLAINTEXT")})
    change = UserScramCredentialUpsertion(
        "bob", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 5000), b"secret"
    )
    admin.alter_user_scram_credentials([change])["bob"].result(PATIENCE_SECONDS)
    (info,) = admin.describe_user_scram_credentials(["bob"])["bob"].result().scram_credential_infos
    assert (info.mechanism, info.iterations) == (ScramMechanism.SCRAM_SHA_256, 5000)
    described = admin.describe_user_scram_credentials().result(PATIENCE_SECONDS)
    assert {"ada", "bob"} <= described.keys()
    deletion = UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([deletion])["bob"].result(PATIENCE_SECONDS)
    with pytest.raises(KafkaException, match="does not exist"):
        admin.alter_user_scram_credentials([deletion])["bob"].result(PATIENCE_SECONDS)
    with pytest.raises(KafkaException, match="Too few iterations"):
        weak = UserScramCredentialUpsertion(
            "bob", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 100), b"secret"
        )
        admin.alter_user_scram_credentials([weak])["bob"].result(PATIENCE_SECONDS)


def test_credentials_are_kept_in_a_file_that_only_the_broker_reads(broker: Broker) -> None:
    stored = broker.data_dir / "metadata" / "entity-configs.json"
    assert stored.stat().st_mode & 0o077 == 0
    assert PASSWORD not in stored.read_text()


def test_listeners_without_users_or_keys_stop_the_start() -> None:
    base = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}
    for mechanism, reason in (("PLAIN", "PLAIN needs its users"), ("OAUTHBEARER", "jwks.endpoint.url")):
        with pytest.raises(StartupError, match=reason):
            Broker(base | {"sasl.enabled.mechanisms": mechanism}).start()
