"""Requests and responses of the registry: parameters, bodies, forwarding to the leader."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from millrace.registry import errors
from millrace.registry.names import in_context
from millrace.registry.parsing import LATEST, formatted
from millrace.registry.records import Json, Record, StoredSchema
from millrace.registry.registry import NotLeader, Registry
from millrace.registry.schemas import AVRO, InvalidSchema
from millrace.registry.settings import aliased
from millrace.services.errors import ApiError

T = TypeVar("T")

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
MAX_BODY_BYTES = 8_000_000
HIGHEST_VERSION = (1 << 31) - 1

# A request with this header comes from a registry that took this one for the leader.
FORWARDED = "x-forward"

_ACCEPTED = (
    CONTENT_TYPE,
    "application/vnd.schemaregistry+json",
    "application/json",
    "application/octet-stream",
)
_FORWARD_SECONDS = 30.0


class Answer(Response):
    """A response of JSON under the registry's content type."""

    media_type = CONTENT_TYPE

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


def registry(request: Request) -> Registry:
    found: Registry = request.app.state.registry
    return found


# Parameters


def flag(request: Request, name: str) -> bool:
    """A query parameter that is true or false."""
    return request.query_params.get(name, "false").lower() == "true"


def number(request: Request, name: str, default: int) -> int:
    """A query parameter that is a number. Raises ApiError."""
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise errors.invalid_body(f"{name} is not a number: {text[:100]}") from None


def page(request: Request, items: list[T]) -> list[T]:
    """The part of a list that `offset` and `limit` choose."""
    offset, limit = max(number(request, "offset", 0), 0), number(request, "limit", -1)
    return items[offset:] if limit < 0 else items[offset : offset + limit]


def subject_of(request: Request, *, follow_alias: bool = True) -> str:
    """The subject that the path names, in the context that the path is under."""
    subject = in_context(request.path_params["subject"], request.path_params.get("context"))
    return aliased(registry(request).state, subject) if follow_alias else subject


def version_of(request: Request) -> int:
    """The version that the path names; LATEST for the latest. Raises ApiError."""
    text = request.path_params["version"]
    if text in ("latest", "-1"):
        return LATEST
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= HIGHEST_VERSION:
        raise errors.invalid_version(text)
    return int(text)


def stored_version(request: Request, *, deleted: bool) -> StoredSchema:
    """The version of a subject that the path names. Raises ApiError."""
    state, subject, version = registry(request).state, subject_of(request), version_of(request)
    found = state.versions(subject, deleted=deleted)
    if not found:
        raise errors.subject_not_found(subject)
    if version == LATEST:
        return found[-1]
    for stored in found:
        if stored.version == version:
            return stored
    raise errors.version_not_found(version)


async def body_of(request: Request) -> Json:
    """The JSON object that a request carries. Raises ApiError."""
    kind = request.headers.get("content-type", CONTENT_TYPE).partition(";")[0].strip().lower()
    if kind not in _ACCEPTED:
        raise ApiError(415, f"HTTP 415 Unsupported Media Type: send {CONTENT_TYPE}")
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > MAX_BODY_BYTES:
            raise ApiError(413, f"the body has more than {MAX_BODY_BYTES} bytes")
    # Kept for a registry that the request may be forwarded to.
    request.state.body = bytes(data)
    try:
        read = msgspec.json.decode(request.state.body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ApiError(400, f"the body is not JSON: {error}") from None
    if not isinstance(read, dict):
        raise ApiError(400, "the body is not a JSON object")
    return read


# Bodies


def version_body(request: Request, stored: StoredSchema) -> Json:
    """A version of a subject as clients read it."""
    body: Json = {"subject": stored.subject, "version": stored.version}
    return body | schema_body(request, stored)


def schema_body(request: Request, stored: StoredSchema) -> Json:
    """A schema as clients read it; the type is left out for Avro, as clients expect."""
    body: Json = {"id": stored.id, "guid": stored.guid}
    if stored.schema_type != AVRO:
        body["schemaType"] = stored.schema_type
    if stored.references:
        body["references"] = [each.to_json() for each in stored.references]
    body |= stored.others
    body["schema"] = text_of(request, stored)
    if stored.deleted:
        body["deleted"] = True
    return body


def text_of(request: Request, stored: StoredSchema) -> str:
    """The text of a schema in the format that the request asks for."""
    try:
        return formatted(registry(request).state, stored, request.query_params.get("format", ""))
    except InvalidSchema as error:
        raise errors.invalid_schema(error.message) from None


# Writes


async def write(request: Request, decide: Callable[[], tuple[Sequence[Record], Any]]) -> Response:
    """Make a write here if this registry leads, else at the leader."""
    here = registry(request)
    await here.has_leader()
    if here.is_leader:
        try:
            return Answer(await here.write(decide))
        except NotLeader:
            await here.has_leader()
    if request.headers.get(FORWARDED) == "false" or here.leader is None or here.is_leader:
        raise errors.no_leader()
    return await forward(request, here.leader.url)


async def forward(request: Request, leader: str) -> Response:
    """Send a request to the leader as it came, and its response back."""
    import httpx

    client: httpx.AsyncClient | None = getattr(request.app.state, "forwarder", None)
    if client is None:
        client = request.app.state.forwarder = httpx.AsyncClient(timeout=_FORWARD_SECONDS, trust_env=False)
    path = request.scope["raw_path"].decode("ascii")
    query = request.scope["query_string"].decode("ascii")
    kept = ("content-type", "accept", "authorization")
    headers = {name: request.headers[name] for name in kept if name in request.headers}
    try:
        response = await client.request(
            request.method,
            f"{leader}{path}" + (f"?{query}" if query else ""),
            content=getattr(request.state, "body", b""),
            headers={**headers, FORWARDED: "false"},
        )
    except httpx.HTTPError as error:
        raise errors.forwarding_failed(f"{leader}: {error or type(error).__name__}") from None
    kind = response.headers.get("content-type", CONTENT_TYPE)
    return Response(response.content, response.status_code, media_type=kind)


Handler = Callable[[Request], Awaitable[Response]]
