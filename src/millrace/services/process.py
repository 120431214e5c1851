"""The services process: the apps of several services on one event loop, each on its own port."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import signal
import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from millrace.services.table import Service, Settings

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

logger = logging.getLogger(__name__)


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

    listeners = []
    for service in services:
        listening = sockets[service.name]
        around = dataclasses.replace(settings, port=listening.getsockname()[1])
        try:
            app = service.load()(around)
        except Exception:
            # The others serve. Clients of this one get a response too, since its port is open.
            logger.exception("the %s cannot start", service.title)
            app = _unavailable(service.title)
        listeners.append(Listener(app, listening))
    # From here on, a signal lets open requests end. Before, it ends the process at once.
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await serve_all(listeners, stopped)


def _unavailable(title: str) -> ASGIApp:
    from millrace.services.errors import ApiError, Json, error_body

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "it has no life of its own"
        error = ApiError(503, f"the {title} could not start; the log of the platform has the reason")
        await Json(error_body(error), error.status)(scope, receive, send)

    return app
