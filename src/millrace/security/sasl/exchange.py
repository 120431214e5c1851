"""The seam between connections and mechanisms."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class AuthenticationFailed(Exception):
    """A client could not prove its identity. The text goes to the log, never to the client."""


class Rejection(AuthenticationFailed):
    """A failure that the mechanism announces with a message of its own before it ends."""

    def __init__(self, reason: str, challenge: bytes) -> None:
        super().__init__(reason)
        self.challenge = challenge


class Identity(NamedTuple):
    """An authenticated user."""

    name: str
    expires_ms: int | None = None
    """When the credential expires, None if it does not."""


class Progress(NamedTuple):
    """The outcome of one message: the reply, and the identity once it is proven."""

    reply: bytes
    identity: Identity | None = None


class Exchange(Protocol):
    """One authentication of one client."""

    async def step(self, message: bytes) -> Progress:
        """Handle a message of the client. Raises AuthenticationFailed."""
