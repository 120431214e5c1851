"""The DRPC server: Storm's HTTP interface, `POST /drpc/{function}` and `GET /drpc/{function}/{args}`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from millrace.drpc.calls import Calls
from millrace.drpc.errors import STATUS, DrpcError
from millrace.services.access import LocalAccess
from millrace.services.errors import Json

if TYPE_CHECKING:
    from starlette.requests import Request

    from millrace.services.table import Settings

PORT = 3774
TIMEOUT_SECONDS = 600.0
MOST_WAITING = 1000
MOST_ARGUMENT_BYTES = 1_000_000


def app(settings: Settings) -> Starlette:
    """The DRPC server for the services of the platform."""
    return drpc_app(settings.bootstrap, settings.client)


def drpc_app(
    bootstrap: str,
    client: Mapping[str, str] | None = None,
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
    most_waiting: int = MOST_WAITING,
) -> Starlette:
    """The DRPC server over a log."""
    calls = Calls(bootstrap, client or {}, timeout_seconds=timeout_seconds, most_waiting=most_waiting)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        calls.start()
        yield
        await calls.stop()

    async def execute(request: Request) -> Response:
        function = request.path_params["function"]
        if request.method == "POST":
            body = await request.body()
            if len(body) > MOST_ARGUMENT_BYTES:
                return _error(413, "INTERNAL_ERROR", f"arguments may have {MOST_ARGUMENT_BYTES:,} bytes")
            try:
                args = body.decode()
            except UnicodeDecodeError:
                return _error(400, "INTERNAL_ERROR", "arguments must be UTF-8 text")
        else:
            args = request.path_params.get("args", "")
        await calls.ready()
        try:
            return PlainTextResponse(await calls.execute(function, args))
        except DrpcError as error:
            return _error(STATUS[error.type], error.type, error.message)
        except asyncio.CancelledError:
            # The server stops, and has waited for the call as long as it may.
            return _error(503, "SERVER_SHUTDOWN", "the DRPC server stops; call again")

    async def functions(_: Request) -> Response:
        await calls.ready()
        try:
            return Json({"functions": await calls.functions(), "waiting": calls.waiting})
        except DrpcError as error:
            return _error(STATUS[error.type], error.type, error.message)

    return Starlette(
        routes=[
            Route("/drpc", functions),
            Route("/drpc/{function}", execute, methods=["GET", "POST"]),
            Route("/drpc/{function}/{args:path}", execute, methods=["GET"]),
        ],
        middleware=[Middleware(LocalAccess)],
        lifespan=lifespan,
    )


def _error(status: int, kind: str, message: str) -> Response:
    """An error in the form of Storm's services."""
    return Json({"error": kind, "errorMessage": message}, status)
