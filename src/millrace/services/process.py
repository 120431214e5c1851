"""The services process: the apps of several services on one event loop, each on its own port."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import socket
from collections.abc import Mapping, Sequence

from millrace.services.table import Service, Settings


def run_services(
    services: Sequence[Service], sockets: Mapping[str, socket.socket], settings: Settings
) -> None:
    """Serve until SIGTERM. A service without a port is alone in its process, and runs by itself."""
    if services[0].port is None:
        services[0].load()(settings)
        return
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(services, sockets, settings))


async def _serve(
    services: Sequence[Service], sockets: Mapping[str, socket.socket], settings: Settings
) -> None:
    from millrace.services.http import Listener, serve_all

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    listeners = []
    for service in services:
        listening = sockets[service.name]
        around = dataclasses.replace(settings, port=listening.getsockname()[1])
        listeners.append(Listener(service.load()(around), listening))
    await serve_all(listeners, stopped)
