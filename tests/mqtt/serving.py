"""MQTT servers for tests: in this process, and in one of their own that can be killed."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvloop

from millrace.mqtt.counters import Counters
from millrace.mqtt.passwords import Authenticator
from millrace.mqtt.server import Listener, Server
from millrace.mqtt.settings import Settings

HOST = "127.0.0.1"
SECONDS = 60


class RunningServer:
    """A server on a thread of this process."""

    def __init__(
        self, settings: Settings, *, authenticator: Authenticator | None = None, **listener: Any
    ) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server: Server

        async def start() -> None:
            self._server = Server(settings, authenticator)
            await self._server.start([Listener(HOST, 0, **listener)])

        self.call(start)
        self.port = self._server.addresses[0][1]

    def call(self, function: Callable[[], Any]) -> Any:
        """Run a coroutine function on the server's loop."""
        return asyncio.run_coroutine_threadsafe(function(), self._loop).result(SECONDS)

    @property
    def counters(self) -> Counters:
        async def read() -> Counters:
            return self._server.counters

        found: Counters = self.call(read)
        return found

    def stop(self) -> None:
        self.call(self._server.stop)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def running(settings: Settings, **more: Any) -> Iterator[RunningServer]:
    server = RunningServer(settings, **more)
    try:
        yield server
    finally:
        server.stop()


class ServerProcess:
    """`millrace mqtt` as a user starts it."""

    def __init__(self, bootstrap: str, *arguments: object, port: int = 0) -> None:
        command = [sys.executable, "-m", "millrace", "mqtt", "--bootstrap-server", bootstrap]
        self.process = subprocess.Popen(
            [*command, "--port", str(port), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.banner = ""
        for line in self.process.stdout:
            self.banner += line
            if "Ctrl-C" in line:
                break
        found = re.search(r"mqtts?://\S+:(\d+)", self.banner)
        if found is None:
            self.process.kill()
            raise AssertionError(self.banner + self.process.communicate()[1])
        self.port = int(found[1])

    def kill9(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=SECONDS)

    def stop(self) -> tuple[int, str, str]:
        """Stop cleanly; returns the exit code and the output."""
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, out, err
