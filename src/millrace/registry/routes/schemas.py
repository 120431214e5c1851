"""Schemas by id and by guid, their subjects, and the list of all."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from millrace.registry import errors
from millrace.registry.names import ALL_CONTEXTS, DEFAULT_CONTEXT, context_of, in_context
from millrace.registry.records import StoredSchema
from millrace.registry.routes.subjects import has_prefix
from millrace.registry.routes.web import Answer, flag, page, registry, schema_body, text_of, version_body
from millrace.registry.schemas import TYPES
from millrace.services.encoded_path import Route


def _with_id(request: Request) -> list[StoredSchema]:
    """The versions that have the id of the path. Raises ApiError if none has."""
    state, text = registry(request).state, request.path_params["id"]
    if not text.isascii() or not text.isdigit():
        raise errors.schema_not_found(text[:100])
    subject = in_context(request.query_params.get("subject", ""), request.path_params.get("context"))
    context = context_of(subject)
    found = state.with_id(int(text), context)
    if not found and context == DEFAULT_CONTEXT and not subject:
        # The only schema with this id may be in another context.
        found = next((each for name in state.contexts() if (each := state.with_id(int(text), name))), [])
    of_subject = [stored for stored in found if stored.subject == subject]
    if not found:
        raise errors.schema_not_found(text)
    return of_subject or found


async def get_by_id(request: Request) -> Response:
    found = _with_id(request)
    body = schema_body(request, found[0])
    del body["id"]
    body.pop("deleted", None)
    if flag(request, "fetchMaxId"):
        body["maxId"] = registry(request).state.next_id(context_of(found[0].subject)) - 1
    return Answer(body)


async def get_text_by_id(request: Request) -> Response:
    return Response(text_of(request, _with_id(request)[0]), media_type=Answer.media_type)


def _visible(request: Request) -> list[StoredSchema]:
    found = [stored for stored in _with_id(request) if flag(request, "deleted") or not stored.deleted]
    subject = request.query_params.get("subject")
    wanted = [stored for stored in found if not subject or has_prefix(stored.subject, subject)]
    return sorted(wanted, key=lambda stored: (stored.subject, stored.version))


async def subjects_of_id(request: Request) -> Response:
    return Answer(page(request, list(dict.fromkeys(stored.subject for stored in _visible(request)))))


async def versions_of_id(request: Request) -> Response:
    versions = [{"subject": stored.subject, "version": stored.version} for stored in _visible(request)]
    return Answer(page(request, versions))


def _with_guid(request: Request) -> list[StoredSchema]:
    guid = request.path_params["guid"]
    found = registry(request).state.with_guid(guid.lower())
    if not found:
        raise errors.schema_not_found(guid[:100])
    return found


async def get_by_guid(request: Request) -> Response:
    body = schema_body(request, _with_guid(request)[0])
    del body["id"]
    return Answer(body)


async def ids_of_guid(request: Request) -> Response:
    found = {context_of(stored.subject): stored.id for stored in _with_guid(request)}
    return Answer([{"context": context, "id": number} for context, number in sorted(found.items())])


async def list_types(request: Request) -> Response:
    return Answer(list(TYPES))


async def list_schemas(request: Request) -> Response:
    """All versions of all subjects, or the latest of each."""
    state, prefix = registry(request).state, request.query_params.get("subjectPrefix", ALL_CONTEXTS)
    if "context" in request.path_params:
        prefix = in_context("" if prefix == ALL_CONTEXTS else prefix, request.path_params["context"])
    found: list[StoredSchema] = []
    for subject in sorted(state.subjects):
        if has_prefix(subject, prefix):
            versions = state.versions(subject, deleted=flag(request, "deleted"))
            found += versions[-1:] if flag(request, "latestOnly") else versions
    return Answer([version_body(request, stored) for stored in page(request, found)])


ROUTES = [
    Route("/schemas", list_schemas, methods=["GET"]),
    Route("/schemas/types", list_types, methods=["GET"]),
    Route("/schemas/ids/{id:name}", get_by_id, methods=["GET"]),
    Route("/schemas/ids/{id:name}/schema", get_text_by_id, methods=["GET"]),
    Route("/schemas/ids/{id:name}/subjects", subjects_of_id, methods=["GET"]),
    Route("/schemas/ids/{id:name}/versions", versions_of_id, methods=["GET"]),
    Route("/schemas/guids/{guid:name}", get_by_guid, methods=["GET"]),
    Route("/schemas/guids/{guid:name}/ids", ids_of_guid, methods=["GET"]),
]
