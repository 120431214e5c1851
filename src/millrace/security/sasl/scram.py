"""SCRAM-SHA-256 and SCRAM-SHA-512, over the credentials of the metadata store."""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable

from millrace.crypto.scram import (
    MIN_ITERATIONS,
    SALT_BYTES,
    ScramCredential,
    ScramFailure,
    ScramMechanism,
    ScramServer,
)
from millrace.security.sasl.exchange import AuthenticationFailed, Identity, Progress

# Unknown users get a salt too, always the same, so that a client cannot tell who exists.
_SECRET = os.urandom(32)


class ScramExchange:
    """One exchange. A wrong password and an unknown user fail at the same message."""

    def __init__(
        self, mechanism: ScramMechanism, credential_of: Callable[[str], ScramCredential | None]
    ) -> None:
        self._server = ScramServer(mechanism)
        self._credential_of = credential_of
        self._is_challenged = False
        self._is_known = False

    async def step(self, message: bytes) -> Progress:
        server = self._server
        try:
            if not self._is_challenged:
                self._is_challenged = True
                user = server.first(message)
                credential = self._credential_of(user)
                self._is_known = credential is not None
                return Progress(server.challenge(credential or _nobody(user)))
            reply = server.final(message)
        except ScramFailure as failure:
            raise AuthenticationFailed(str(failure)) from None
        if not self._is_known:
            raise AuthenticationFailed("there is no such user")
        return Progress(reply, Identity(server.user))


def _nobody(user: str) -> ScramCredential:
    """A credential that no password fits."""
    salt = hmac.digest(_SECRET, user.encode(), "sha256")[:SALT_BYTES]
    return ScramCredential(salt, os.urandom(32), os.urandom(32), MIN_ITERATIONS)
