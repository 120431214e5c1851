"""The registry as a web application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from millrace.registry.registry import Options, Registry
from millrace.registry.routes import compatibility, schemas, server, settings, subjects
from millrace.registry.routes.web import Answer
from millrace.services.access import LocalAccess
from millrace.services.encoded_path import EncodedPath
from millrace.services.errors import ApiError, error_body, error_handlers

_ROUTES = [*subjects.ROUTES, *schemas.ROUTES, *settings.ROUTES, *compatibility.ROUTES]


class Loaded:
    """ASGI middleware that lets requests wait until the registry has read its topic."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            here: Registry = scope["app"].state.registry
            try:
                await here.loaded()
            except ApiError as error:
                await Answer(error_body(error), error.status)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def registry_app(options: Options) -> Starlette:
    """A registry that opens when the application starts."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.registry = Registry(options)
        app.state.registry.start()
        try:
            yield
        finally:
            forwarder = getattr(app.state, "forwarder", None)
            if forwarder is not None:
                await forwarder.aclose()
            await app.state.registry.close()

    return Starlette(
        routes=[
            *server.ROUTES,
            *_ROUTES,
            Mount("/contexts/{context:name}", routes=_ROUTES),
        ],
        middleware=[Middleware(LocalAccess), Middleware(EncodedPath), Middleware(Loaded)],
        exception_handlers=error_handlers(error_body, response=Answer),
        lifespan=lifespan,
    )
