"""PLAIN (RFC 4616): a name and a password, which TLS has to protect."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from millrace.security.sasl.exchange import AuthenticationFailed, Identity, Progress

_USER_OPTION = "user_"


def plain_users(options: Mapping[str, str]) -> dict[str, str]:
    """The passwords of a PlainLoginModule: `user_ada="secret"` is the password of ada."""
    return {
        name.removeprefix(_USER_OPTION): password
        for name, password in options.items()
        if name.startswith(_USER_OPTION)
    }


class PlainExchange:
    """Compares with the passwords of the configuration."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users

    async def step(self, message: bytes) -> Progress:
        parts = bytes(message).split(b"\0")
        if len(parts) != 3:
            raise AuthenticationFailed("a PLAIN message without a name and a password")
        authorized, user, password = (part.decode(errors="replace") for part in parts)
        # An unknown user takes as long as a wrong password.
        expected = self._users.get(user, "")
        is_right = hmac.compare_digest(password.encode(), expected.encode())
        if not user or not password or not is_right or user not in self._users:
            raise AuthenticationFailed("wrong user or password")
        if authorized and authorized != user:
            raise AuthenticationFailed("a user cannot act for another one")
        return Progress(b"", Identity(user))
