"""Content types of version 2."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from millrace.rest.errors import error
from millrace.rest.formats import FORMATS
from millrace.services.errors import ApiError

CONTENT_TYPE = "application/vnd.kafka.v2+json"
_EMBEDDED = re.compile(r"application/vnd\.kafka\.([a-z]+)\.v[12]\+json")
_PLAIN = (
    "application/json",
    CONTENT_TYPE,
    "application/vnd.kafka+json",
    "application/octet-stream",
    "*/*",
    "",
)


class Answer(Response):
    """A response of JSON under the content type of version 2."""

    media_type = CONTENT_TYPE

    def render(self, content: Any) -> bytes:
        return b"" if content is None else msgspec.json.encode(content)


def no_content() -> Response:
    return Response(status_code=204)


def format_of_body(request: Request) -> str:
    """The format of the records that a request carries; plain JSON means binary. Raises ApiError."""
    kind = _kinds(request.headers.get("content-type", ""))[0]
    found = _EMBEDDED.fullmatch(kind)
    if found is not None and found[1] in FORMATS:
        return found[1]
    if kind in _PLAIN:
        return "binary"
    raise ApiError(415, f"HTTP 415 Unsupported Media Type: {kind[:100]}")


def require_accepted(request: Request, wanted: str) -> str:
    """The content type for records of a format. Raises ApiError if the client does not accept it."""
    ours = f"application/vnd.kafka.{wanted}.v2+json"
    for kind in _kinds(request.headers.get("accept", "*/*")):
        found = _EMBEDDED.fullmatch(kind)
        if kind in _PLAIN or kind == "application/*" or (found is not None and found[1] == wanted):
            return ours
    raise error(40601, f"The requested embedded data format does not match the consumer's: it is {wanted}.")


def _kinds(header: str) -> list[str]:
    return [each.partition(";")[0].strip().lower() for each in header.split(",")]
