"""Serving HTTP: one app in the foreground, or several apps with a port each on one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from millrace.services.port_owner import port_owner

if TYPE_CHECKING:
    from starlette.types import ASGIApp

logger = logging.getLogger(__name__)

BACKLOG = 1024
# Requests that are still in progress when a service stops have this long to end.
GRACE_SECONDS = 3


class ServiceError(Exception):
    """A service cannot run; the text says why and what to do."""


class Listener(NamedTuple):
    """An app and the socket that it is served on."""

    app: ASGIApp
    socket: socket.socket


def serve(
    app: ASGIApp,
    host: str,
    port: int,
    *,
    name: str = "the service",
    on_ready: Callable[[str], object] | None = None,
) -> None:
    """Serve one app until SIGTERM or SIGINT. Raises ServiceError if the port is taken.

    `on_ready` gets the address when requests are accepted.
    """
    serve_socket(app, listen(host, port, name=name), on_ready=on_ready)


def serve_socket(
    app: ASGIApp, listening: socket.socket, *, on_ready: Callable[[str], object] | None = None
) -> None:
    """Serve one app on a socket from `listen`, until SIGTERM or SIGINT."""
    import uvloop

    listener = Listener(app, listening)
    address = url_of(listening)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_until_signal([listener], lambda: on_ready(address) if on_ready else None))


async def _until_signal(listeners: Sequence[Listener], on_ready: Callable[[], object]) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    await serve_all(listeners, stopped, on_ready=on_ready)


async def serve_all(
    listeners: Sequence[Listener], stopped: asyncio.Event, *, on_ready: Callable[[], object] | None = None
) -> None:
    """Serve several apps until the event is set, then let their open requests end."""
    import uvicorn

    class Server(uvicorn.Server):
        """A server that leaves the signals to the process: it may be one of several."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    servers = [
        Server(
            uvicorn.Config(
                listener.app,
                log_config=None,
                access_log=False,
                log_level=logging.WARNING,
                server_header=False,
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )
        for listener in listeners
    ]
    running = [
        asyncio.ensure_future(server.serve(sockets=[listener.socket]))
        for server, listener in zip(servers, listeners, strict=True)
    ]
    stopping = asyncio.ensure_future(stopped.wait())
    try:
        while not all(server.started for server in servers):
            await asyncio.sleep(0.01)
            if any(task.done() for task in running):
                raise ServiceError("a service did not start; its log has the reason")
            if stopped.is_set():
                # No request is open yet. uvicorn would log that its start was interrupted.
                logging.getLogger("uvicorn.error").disabled = True
                for task in running:
                    task.cancel()
                return
        if on_ready is not None:
            on_ready()
        await asyncio.wait((stopping, *running), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        for server in servers:
            server.should_exit = True
        await asyncio.gather(*running, return_exceptions=stopped.is_set())


def listen(host: str, port: int, *, name: str = "the service") -> socket.socket:
    """A socket that listens on the address; port 0 takes a free one. Raises ServiceError if it cannot."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ServiceError(f"{name} cannot listen on {host}: {error.strerror}; check the host") from error
    listening = socket.socket(family, kind, protocol)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise ServiceError(_bind_trouble(name, host, port, error)) from error
    listening.setblocking(False)
    return listening


def url_of(listening: socket.socket) -> str:
    """The address of a service, for people and clients."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _bind_trouble(name: str, host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        owner = port_owner(port)
        return f"port {port} of {name} is in use" + (f" by {owner}" if owner else "")
    if error.errno == errno.EACCES:
        return f"port {port} of {name} needs privileges; take one above 1023"
    return f"{name} cannot listen on {host}:{port}: {error.strerror or error}"
