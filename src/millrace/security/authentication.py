"""Authentication of clients: which mechanisms a listener offers, and the state of each connection."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from millrace.clock import Clock
from millrace.config import BrokerConfig, ConfigError
from millrace.config.jaas import jaas_options
from millrace.crypto import scram
from millrace.crypto.scram import ScramCredential, ScramMechanism
from millrace.errors import Error, KafkaError
from millrace.security.sasl.exchange import AuthenticationFailed, Exchange, Identity, Progress, Rejection
from millrace.security.sasl.oauthbearer import OAuthBearerExchange, TokenChecks
from millrace.security.sasl.plain import PlainExchange, plain_users
from millrace.security.sasl.scram import ScramExchange

logger = logging.getLogger(__name__)

CredentialOf = Callable[[str, ScramMechanism], ScramCredential | None]
"""Finds the credential of a user for a mechanism."""


class ListenerAuthentication:
    """The mechanisms of one listener. Owned by the broker loop; not thread-safe."""

    def __init__(
        self, listener: str, config: BrokerConfig, credential_of: CredentialOf, clock: Clock
    ) -> None:
        """Raises ConfigError if a mechanism lacks its settings."""
        sasl = config.sasl(listener)
        self.mechanisms = sasl.sasl_enabled_mechanisms
        self.max_lifetime_ms = sasl.connections_max_reauth_ms
        self.max_message_bytes = sasl.sasl_server_max_receive_size
        self.clock = clock
        self._credential_of = credential_of
        self._plain_users: dict[str, str] = {}
        self._tokens: TokenChecks | None = None
        if not self.mechanisms:
            raise ConfigError("sasl.enabled.mechanisms names no mechanism")
        if "PLAIN" in self.mechanisms:
            self._plain_users = _plain_users(config, listener)
        if "OAUTHBEARER" in self.mechanisms:
            self._tokens = TokenChecks(sasl, clock)

    def exchange(self, mechanism: str) -> Exchange:
        """Begin an exchange of an enabled mechanism."""
        if mechanism == "PLAIN":
            return PlainExchange(self._plain_users)
        if mechanism == "OAUTHBEARER":
            assert self._tokens is not None
            return OAuthBearerExchange(self._tokens.identity)
        kind = scram.BY_NAME[mechanism]
        return ScramExchange(kind, lambda user: self._credential_of(user, kind))


def _plain_users(config: BrokerConfig, listener: str) -> dict[str, str]:
    text = config.jaas_config(listener, "PLAIN")
    if text is None:
        raise ConfigError(
            f"PLAIN needs its users in listener.name.{listener.lower()}.plain.sasl.jaas.config:"
            ' org.apache.kafka.common.security.plain.PlainLoginModule required user_NAME="PASSWORD";'
        )
    return plain_users(jaas_options(text))


@dataclass(slots=True, repr=False)
class SaslSession:
    """The authentication of one connection. Owned by the broker loop; not thread-safe."""

    authentication: ListenerAuthentication
    peer: str
    admit: Callable[[int], None]
    """Offers every API for so many milliseconds, 0 for as long as the connection lasts."""
    disconnect: Callable[[str], None]
    mechanism: str | None = None
    identity: Identity | None = None
    """The user, from the first success on."""
    _exchange: Exchange | None = None
    _has_failed: bool = False

    def begin(self, mechanism: str) -> None:
        """Choose the mechanism. A client that authenticates again must keep the one it had."""
        self._check_alive()
        if mechanism not in self.authentication.mechanisms:
            raise KafkaError(Error.UNSUPPORTED_SASL_MECHANISM)
        if self.identity is not None and mechanism != self.mechanism:
            raise self._failed("another mechanism than the first time")
        self.mechanism = mechanism
        self._exchange = self.authentication.exchange(mechanism)

    async def step(self, message: bytes) -> Progress:
        """Handle a message. Raises KafkaError; the connection is of no use afterwards."""
        self._check_alive()
        if self._exchange is None:
            self._has_failed = True
            raise KafkaError(Error.ILLEGAL_SASL_STATE)
        if len(message) > self.authentication.max_message_bytes:
            raise self._failed("a message larger than sasl.server.max.receive.size")
        try:
            progress = await self._exchange.step(message)
        except Rejection as rejection:
            logger.info("%s: authentication failed: %s", self.peer, rejection)
            return Progress(rejection.challenge)
        except AuthenticationFailed as failure:
            raise self._failed(str(failure)) from None
        if progress.identity is not None:
            self._exchange = None
            if self.identity is not None and self.identity.name != progress.identity.name:
                raise self._failed("another user than the first time")
            self.identity = progress.identity
        return progress

    def lifetime_ms(self) -> int:
        """Time for which the identity is good, 0 for as long as the connection."""
        assert self.identity is not None
        limits = [self.authentication.max_lifetime_ms] if self.authentication.max_lifetime_ms else []
        if self.identity.expires_ms is not None:
            # A token may have expired within the allowed difference of clocks.
            limits.append(max(self.identity.expires_ms - self.authentication.clock.now_ms(), 1))
        return min(limits, default=0)

    def _check_alive(self) -> None:
        if self._has_failed:
            raise KafkaError(Error.ILLEGAL_SASL_STATE)

    def _failed(self, reason: str) -> KafkaError:
        """The error for the client, which does not say what was wrong; the log does."""
        self._has_failed = True
        logger.info("%s: authentication with %s failed: %s", self.peer, self.mechanism, reason)
        return KafkaError(
            Error.SASL_AUTHENTICATION_FAILED,
            "Authentication failed during authentication due to invalid credentials with SASL mechanism"
            f" {self.mechanism}",
        )
