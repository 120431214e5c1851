"""A client for the length of a command, and an event loop to run its requests."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from millrace.cli.terminal.options import Target
from millrace.client import Client, security_of

T = TypeVar("T")

CLIENT_ID = "millrace-cli"
REQUEST_SECONDS = 60.0


class Session:
    """Runs requests of a connected client, one after the other."""

    def __init__(self, target: Target, *, timeout_seconds: float = REQUEST_SECONDS) -> None:
        self.client = Client(
            target.bootstrap,
            client_id=target.properties.get("client.id", CLIENT_ID),
            timeout_seconds=timeout_seconds,
            security=security_of(target.properties),
        )
        self._runner = asyncio.Runner()
        try:
            self.run(self.client.any_broker())
        except BaseException:
            self._runner.close()
            raise

    def run(self, request: Coroutine[Any, Any, T]) -> T:
        """Run a request to its end."""
        return self._runner.run(request)

    def close(self) -> None:
        self.client.close()
        self._runner.close()


@contextmanager
def connected(target: Target, *, timeout_seconds: float = REQUEST_SECONDS) -> Iterator[Session]:
    """A session for the length of a block. Raises KafkaError if no broker can be reached."""
    session = Session(target, timeout_seconds=timeout_seconds)
    try:
        yield session
    finally:
        session.close()
