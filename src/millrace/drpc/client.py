"""Clients of a DRPC server: `Client` waits for each call, `AsyncClient` is for async code.

>>> client = Client("http://localhost:3774")
>>> client.execute("reach", "foo.com/blog/1")  # doctest: +SKIP
'16'
"""

from __future__ import annotations

import asyncio
import http.client
import json
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlsplit

from millrace.drpc.errors import STATUS, DrpcError

DEFAULT_URL = "http://localhost:3774"
# Longer than a call may take in the server.
TIMEOUT_SECONDS = 610.0


class Client:
    """Calls functions, one at a time, over one connection. Use one client for each thread."""

    def __init__(self, url: str = DEFAULT_URL, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"{url!r} is not the address of a DRPC server; write http://host:3774")
        self._address = f"{parts.hostname}:{parts.port or 3774}"
        self._connection = http.client.HTTPConnection(
            parts.hostname, parts.port or 3774, timeout=timeout_seconds
        )

    def execute(self, function: str, args: str = "") -> str:
        """Call a function and return its result; raises DrpcError if the call fails."""
        return _result(*self._request("POST", f"/drpc/{quote(function, safe='')}", args.encode()))

    def functions(self) -> list[str]:
        """The functions that the server knows."""
        found: list[str] = json.loads(_result(*self._request("GET", "/drpc", None)))["functions"]
        return found

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _request(self, method: str, path: str, body: bytes | None) -> tuple[int, str]:
        try:
            self._connection.request(method, path, body)
            response = self._connection.getresponse()
            return response.status, response.read().decode()
        except TimeoutError as error:
            self._connection.close()
            raise DrpcError(
                "SERVER_TIMEOUT", f"the DRPC server at {self._address} does not answer"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            # A call that was under way may have been executed: only its caller knows whether to repeat it.
            self._connection.close()
            raise DrpcError(
                "SERVER_SHUTDOWN",
                f"the DRPC server at {self._address} is away ({error}); start it with `millrace up`,"
                " and call again",
            ) from error


class AsyncClient:
    """Calls functions from async code, many at once, each over a connection of its own."""

    def __init__(
        self, url: str = DEFAULT_URL, *, timeout_seconds: float = TIMEOUT_SECONDS, most_connections: int = 100
    ) -> None:
        self._arguments: dict[str, Any] = {"url": url, "timeout_seconds": timeout_seconds}
        self._idle: deque[Client] = deque([Client(**self._arguments)])
        # asyncio's own threads are few, and others use them too.
        self._threads = ThreadPoolExecutor(most_connections, thread_name_prefix="drpc-client")

    async def execute(self, function: str, args: str = "") -> str:
        """Call a function and return its result; raises DrpcError if the call fails."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._execute, function, args)

    def _execute(self, function: str, args: str) -> str:
        try:
            client = self._idle.pop()
        except IndexError:
            client = Client(**self._arguments)
        try:
            return client.execute(function, args)
        finally:
            self._idle.append(client)

    async def functions(self) -> list[str]:
        """The functions that the server knows."""
        return await asyncio.to_thread(Client(**self._arguments).functions)

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        while self._idle:
            self._idle.pop().close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _result(status: int, body: str) -> str:
    if status == 200:
        return body
    try:
        found = json.loads(body)
        kind, message = found["error"], found["errorMessage"]
    except (ValueError, KeyError, TypeError):
        kind, message = "INTERNAL_ERROR", f"the server answered {status}: {body[:200]}"
    raise DrpcError(kind if kind in STATUS else "INTERNAL_ERROR", message)
