"""Errors of services, as exceptions and as JSON bodies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.requests import Request

logger = logging.getLogger(__name__)

UNEXPECTED = "the service failed; its log has the details"


class ApiError(Exception):
    """A request fails; the client gets this status, this code and this text."""

    def __init__(self, status: int, message: str, *, code: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = status if code is None else code
        self.message = message


class Json(Response):
    """A response of JSON, encoded by msgspec."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


Body = Callable[[ApiError], Any]
"""The body of an error, as this API writes it."""


def error_body(error: ApiError) -> dict[str, Any]:
    """The body that Confluent's services use."""
    return {"error_code": error.code, "message": error.message}


def error_handlers(
    body: Body = error_body, *, response: type[Response] = Json
) -> Mapping[Any, Callable[[Request, Exception], Response]]:
    """Starlette's exception_handlers, so that every error has a body of the same form."""

    def render(request: Request, exception: Exception) -> Response:
        match exception:
            case ApiError():
                error, headers = exception, None
            case HTTPException():
                error, headers = ApiError(exception.status_code, exception.detail), exception.headers
            case _:
                # Starlette raises it again behind this response, and the server logs it.
                error, headers = ApiError(500, UNEXPECTED), None
        return response(body(error), error.status, headers=headers)

    return {ApiError: render, HTTPException: render, Exception: render}
