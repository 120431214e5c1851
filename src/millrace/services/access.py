"""Access to local services: requests that a foreign web page sends are refused.

A page in a browser of this machine can reach every local port. Such a request carries an Origin that is not
the service's own, or, after a rebinding of the page's DNS name, a Host that is not the service's own.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from millrace.services.errors import ApiError, Body, Json, error_body

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send


class LocalAccess:
    """ASGI middleware that refuses foreign Host and Origin headers.

    A Host may be any IP address (only a name can be rebound), a name of this machine, or one of `hosts`. An
    Origin must be that of the service itself, or one of `origins`.
    """

    def __init__(
        self, app: ASGIApp, hosts: Iterable[str] = (), origins: Iterable[str] = (), body: Body = error_body
    ) -> None:
        self._app = app
        self._hosts = {"localhost", socket.gethostname().lower(), *(host.lower() for host in hosts)}
        self._origins = {origin.lower().rstrip("/") for origin in origins}
        self._body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            headers = Headers(scope=scope)
            reason = self._objection(headers.getlist("host"), headers.getlist("origin"))
            if reason is not None:
                error = ApiError(403, reason)
                await Json(self._body(error), error.status)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _objection(self, hosts: list[str], origins: list[str]) -> str | None:
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return f"the Host header {', '.join(hosts) or '(none)'} is not this service"
        for origin in origins:
            if origin.lower() not in (*self._origins, f"http://{hosts[0].lower()}"):
                return f"pages of {origin} may not use this service"
        return None

    def _is_ours(self, host: str) -> bool:
        name = _without_port(host).lower()
        return name in self._hosts or _is_address(name)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def require_token(request: Request, token: str, where: str) -> None:
    """Raise ApiError 401 unless the request carries the token; `where` says where it is found."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    # As bytes: compare_digest refuses text with letters beyond ASCII.
    right = hmac.compare_digest(given.strip().encode(), token.encode())
    if scheme.lower() != "bearer" or not right:
        raise ApiError(401, f"send the header 'Authorization: Bearer TOKEN'; the token is in {where}")
