"""Paths as they were sent: a name in a path may contain an encoded slash."""

from __future__ import annotations

from urllib.parse import quote, unquote

from starlette.convertors import Convertor, register_url_convertor
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send


class EncodedPath:
    """ASGI middleware that leaves paths encoded, so that routes split them at real slashes only."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope.get("raw_path"):
            scope = {**scope, "path": scope["raw_path"].decode("ascii", "replace")}
        await self._app(scope, receive, send)


class NameConvertor(Convertor[str]):
    """A segment of an encoded path: `{subject:name}` in a route."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value)

    def to_string(self, value: str) -> str:
        return quote(value, safe="")


register_url_convertor("name", NameConvertor())

# Imported from here, a route can be sure that the convertor is known.
__all__ = ["EncodedPath", "NameConvertor", "Route"]
