"""A web application on a thread of this process, on a free port."""

import asyncio
import threading
from collections.abc import Callable

import httpx
from starlette.applications import Starlette

from millrace.services.http import Listener, listen, serve_all, url_of

DEADLINE = 30.0


class ServedApp:
    """Serves until it is closed; `http` is a client with the right address."""

    def __init__(self, make: Callable[[int], Starlette]) -> None:
        self._socket = listen("127.0.0.1", 0)
        self.url = url_of(self._socket)
        self.app = make(self._socket.getsockname()[1])
        self._stopped = asyncio.Event()
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(DEADLINE)
        self.http = httpx.Client(base_url=self.url, timeout=DEADLINE, trust_env=False)

    def _run(self) -> None:
        self._loop.run_until_complete(
            serve_all([Listener(self.app, self._socket)], self._stopped, on_ready=self._ready.set)
        )

    def close(self) -> None:
        self.http.close()
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()
        self._loop.close()
