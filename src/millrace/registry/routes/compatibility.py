"""Compatibility of a schema with a version of a subject, or with all that its level names."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from millrace.registry import decisions, errors
from millrace.registry.parsing import new_schema, parsed_stored
from millrace.registry.records import Json
from millrace.registry.routes.web import Answer, body_of, flag, registry, stored_version, subject_of
from millrace.registry.schemas import InvalidSchema
from millrace.registry.schemas.levels import Earlier
from millrace.registry.settings import level_of
from millrace.services.encoded_path import Route


def _body(request: Request, reasons: list[str]) -> Json:
    body: Json = {"is_compatible": not reasons}
    if flag(request, "verbose"):
        body["messages"] = reasons
    return body


async def check_version(request: Request) -> Response:
    here, subject = registry(request), subject_of(request)
    body = await body_of(request)
    new = new_schema(here.state, subject, body, normalize=flag(request, "normalize"))
    stored = stored_version(request, deleted=False)
    try:
        earlier = [Earlier(stored.version, parsed_stored(here.state, stored))]
    except InvalidSchema as error:
        raise errors.invalid_schema(error.message) from None
    return Answer(_body(request, decisions.compare(new, earlier, level_of(here.state, subject))))


async def check_history(request: Request) -> Response:
    here, subject = registry(request), subject_of(request)
    body = await body_of(request)
    new = new_schema(here.state, subject, body, normalize=flag(request, "normalize"))
    level = level_of(here.state, subject)
    return Answer(_body(request, decisions.incompatible_with_history(here.state, subject, new, level)))


ROUTES = [
    Route("/compatibility/subjects/{subject:name}/versions", check_history, methods=["POST"]),
    Route("/compatibility/subjects/{subject:name}/versions/{version:name}", check_version, methods=["POST"]),
]
