"""Security of a client from Kafka's client properties: `security.protocol`, `ssl.*`, `sasl.*`.

The names of librdkafka are understood too: `ssl.ca.location`, `sasl.username`, `sasl.password`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from millrace.client.connection import PLAIN, Connection, Security
from millrace.config import ConfigError
from millrace.config.jaas import jaas_options
from millrace.config.security import TLS_OPTIONS, TlsConfig
from millrace.crypto.scram import BY_NAME, ScramClient, ScramFailure
from millrace.errors import Error, KafkaError, check
from millrace.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from millrace.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    import ssl

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
# A client authenticates again before this share of the session's lifetime has passed.
LIFETIME_SHARE = 0.85

_ALIASES = {"ssl.ca.location": "ssl.truststore.location", "ssl.ca.pem": "ssl.truststore.certificates"}

Messages = Callable[[Connection], Awaitable[int]]
"""Exchanges the messages of a mechanism; returns the session's lifetime in milliseconds."""


def security_of(properties: Mapping[str, str]) -> Security:
    """The security that client properties ask for. Raises ConfigError, whose text holds no secrets."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ConfigError(f"security.protocol must be one of {', '.join(PROTOCOLS)}, got {protocol}")
    if protocol == "PLAINTEXT":
        return PLAIN
    return Security(
        tls=_tls(properties) if protocol.endswith("SSL") else None,
        authenticate=_authentication(properties) if protocol.startswith("SASL") else None,
    )


# TLS


def _tls(properties: Mapping[str, str]) -> ssl.SSLContext:
    from millrace.crypto.tls import client_context

    given = {_ALIASES.get(name, name): text for name, text in properties.items()}
    if "ssl.certificate.location" in given and "ssl.key.location" in given:
        given["ssl.keystore.certificate.chain"] = _content(given["ssl.certificate.location"])
        given["ssl.keystore.key"] = _content(given["ssl.key.location"])
    # Each option parses to the type of its field.
    values: dict[str, Any] = {
        option.attribute: option.parse(given[option.name]) for option in TLS_OPTIONS if option.name in given
    }
    return client_context(TlsConfig(**values))


def _content(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'not a text'}") from None


# SASL


def _authentication(properties: Mapping[str, str]) -> Callable[[Connection], Awaitable[None]]:
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "GSSAPI"
    exchange = _exchange(mechanism.upper(), properties)
    renewals: set[asyncio.Task[None]] = set()

    async def authenticate(connection: Connection) -> None:
        chosen = await connection.send(SaslHandshakeRequest(mechanism.upper()), SaslHandshakeResponse)
        if chosen.error_code == Error.UNSUPPORTED_SASL_MECHANISM:
            raise KafkaError(
                Error.UNSUPPORTED_SASL_MECHANISM,
                f"the broker does not offer {mechanism}; it offers {', '.join(chosen.mechanisms)}",
            )
        check(chosen.error_code)
        try:
            lifetime_ms = await exchange(connection)
        except ScramFailure as failure:
            raise KafkaError(Error.SASL_AUTHENTICATION_FAILED, str(failure)) from None
        if lifetime_ms:
            loop = asyncio.get_running_loop()
            loop.call_later(lifetime_ms * LIFETIME_SHARE / 1000, renew, connection)

    def renew(connection: Connection) -> None:
        if connection.is_open:
            task = asyncio.get_running_loop().create_task(_quietly(authenticate(connection), connection))
            renewals.add(task)
            task.add_done_callback(renewals.discard)

    return authenticate


async def _quietly(work: Awaitable[None], connection: Connection) -> None:
    """Close the connection if it cannot be authenticated again; the next request opens another one."""
    try:
        await work
    except KafkaError:
        connection.close()


def _exchange(mechanism: str, properties: Mapping[str, str]) -> Messages:
    if mechanism == "OAUTHBEARER":
        return _oauthbearer(properties)
    if mechanism != "PLAIN" and mechanism not in BY_NAME:
        raise ConfigError(
            f"sasl.mechanism={mechanism} is not supported; use PLAIN, {', '.join(BY_NAME)} or OAUTHBEARER"
        )
    user, password = user_and_password(properties)

    async def plain(connection: Connection) -> int:
        response = await _send(connection, f"\0{user}\0{password}".encode())
        return response.session_lifetime_ms

    async def scram(connection: Connection) -> int:
        client = ScramClient(BY_NAME[mechanism], user, password)
        challenge = await _send(connection, client.first())
        proof = await asyncio.to_thread(client.final, challenge.auth_bytes)
        final = await _send(connection, proof)
        client.check(final.auth_bytes)
        return final.session_lifetime_ms

    return plain if mechanism == "PLAIN" else scram


def user_and_password(properties: Mapping[str, str]) -> tuple[str, str]:
    """The user of `sasl.jaas.config`, or of `sasl.username` and `sasl.password`. Raises ConfigError."""
    if jaas := properties.get("sasl.jaas.config"):
        options = jaas_options(jaas)
        user, password = options.get("username"), options.get("password")
    else:
        user, password = properties.get("sasl.username"), properties.get("sasl.password")
    if not user or password is None:
        raise ConfigError(
            "SASL needs a user: set sasl.jaas.config with username and password, or sasl.username and"
            " sasl.password"
        )
    return user, password


def _oauthbearer(properties: Mapping[str, str]) -> Messages:
    url = urlsplit(properties.get("sasl.oauthbearer.token.endpoint.url", ""))
    if url.scheme != "file":
        raise ConfigError(
            "OAUTHBEARER needs a file with the token: sasl.oauthbearer.token.endpoint.url=file:///path"
        )
    path = url2pathname(url.path)

    async def exchange(connection: Connection) -> int:
        message = f"n,,\x01auth=Bearer {_content(path)}\x01\x01".encode()
        response = await _send(connection, message)
        if response.auth_bytes:
            # The broker has refused the token, and expects that to be acknowledged.
            await _send(connection, b"\x01")
        return response.session_lifetime_ms

    return exchange


async def _send(connection: Connection, message: bytes) -> SaslAuthenticateResponse:
    response = await connection.send(SaslAuthenticateRequest(message), SaslAuthenticateResponse)
    check(response.error_code, response.error_message)
    return response
