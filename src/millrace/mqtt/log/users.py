"""The log's own users: a client may connect if the log accepts its user name and password by SASL."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from millrace.mqtt.log.clients import QUIET
from millrace.mqtt.log.topics import LogUnavailable

if TYPE_CHECKING:
    from millrace.mqtt.settings import Settings

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LOGINS_AT_ONCE = 4
LOGIN_SECONDS = 10.0
POLL_SECONDS = 0.1
TRUST_SECONDS = 60.0
"""A password is not checked again within this time, so that a thousand sensors of one user log in once."""


class SaslUsers:
    """Logs in to the log as each user. Owned by the event loop; logins run on threads."""

    def __init__(self, settings: Settings, mechanism: str) -> None:
        self._properties: dict[str, Any] = {
            **QUIET,
            **settings.properties,
            "bootstrap.servers": settings.bootstrap,
            "sasl.mechanism": mechanism,
        }
        self._properties.setdefault("security.protocol", "SASL_PLAINTEXT")
        self._secret = secrets.token_bytes(32)
        self._trusted: dict[str, tuple[bytes, float]] = {}
        """The digest of each user's password, and the time until which it counts."""
        self._logins = asyncio.Semaphore(LOGINS_AT_ONCE)

    async def allows(self, username: str | None, password: bytes | None) -> bool:
        """Whether the log accepts the password. Raises LogUnavailable."""
        if not username or not password:
            return False
        digest = hmac.digest(self._secret, password, "sha256")
        if self._is_trusted(username, digest):
            return True
        try:
            text = password.decode()
        except UnicodeDecodeError:
            return False
        async with self._logins:
            if self._is_trusted(username, digest):
                return True
            is_right = await asyncio.to_thread(self._log_in, username, text)
        if is_right:
            self._trusted[username] = (digest, time.monotonic() + TRUST_SECONDS)
        return is_right

    def _is_trusted(self, username: str, digest: bytes) -> bool:
        known, until = self._trusted.get(username, (b"", 0.0))
        return time.monotonic() < until and hmac.compare_digest(known, digest)

    def _log_in(self, username: str, password: str) -> bool:
        refused: list[KafkaError] = []

        def note(error: KafkaError) -> None:
            if error.code() == KafkaError._AUTHENTICATION:
                refused.append(error)

        own: dict[str, Any] = {"sasl.username": username, "sasl.password": password, "error_cb": note}
        admin = AdminClient({**self._properties, **own})
        deadline = time.monotonic() + LOGIN_SECONDS
        while time.monotonic() < deadline:
            try:
                admin.list_topics(timeout=POLL_SECONDS)
                return True
            except KafkaException:
                # The log is not there yet, or it has refused the user: the callback knows.
                admin.poll(0)
            if refused:
                return False
        raise LogUnavailable("the log does not answer; users cannot be checked")
