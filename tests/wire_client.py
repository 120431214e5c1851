"""A client for tests without an event loop: one connection, requests in versions of the test's choice."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self

from millrace.client import Connection, parse_addresses
from millrace.wire.schema import Request

# Generous, since it only ends a test that has failed.
RESPONSE_SECONDS = 30.0


class WireClient:
    """A connection to a broker. Raises ConnectionLost if the broker closes it."""

    def __init__(self, bootstrap: str) -> None:
        self._runner = asyncio.Runner()
        (address,) = parse_addresses(bootstrap)
        try:
            self.connection = self._runner.run(
                Connection.open(address, client_id="tests", timeout_seconds=RESPONSE_SECONDS)
            )
        except BaseException:
            self._runner.close()
            raise

    def send(self, request: Request, version: int) -> Any:
        """Send a request and wait for its response."""
        return self._runner.run(self.connection.send_in(version, request, request.response))

    def begin(self, request: Request, version: int) -> asyncio.Task[Any]:
        """Send a request without waiting."""
        return self._runner.run(self._begin(request, version))

    async def _begin(self, request: Request, version: int) -> asyncio.Task[Any]:
        response = asyncio.create_task(self.connection.send_in(version, request, request.response))
        await asyncio.sleep(0)
        return response

    def finish(self, response: asyncio.Task[Any]) -> Any:
        """Wait for the response to a request that was begun."""

        async def finish() -> Any:
            return await response

        return self._runner.run(finish())

    def close(self) -> None:
        self.connection.close()
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
