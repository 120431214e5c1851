"""Subjects and their versions: list, register, look up, delete."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from millrace.registry import decisions, errors
from millrace.registry.names import ALL_CONTEXTS, in_context
from millrace.registry.parsing import new_schema
from millrace.registry.records import Json, Record, StoredSchema
from millrace.registry.routes.web import (
    Answer,
    body_of,
    flag,
    page,
    registry,
    stored_version,
    subject_of,
    text_of,
    version_body,
    write,
)
from millrace.registry.settings import config_of
from millrace.services.encoded_path import Route


async def list_subjects(request: Request) -> Response:
    state = registry(request).state
    prefix = request.query_params.get("subjectPrefix", ALL_CONTEXTS)
    if "context" in request.path_params:
        prefix = in_context("" if prefix == ALL_CONTEXTS else prefix, request.path_params["context"])
    only_deleted = flag(request, "deletedOnly")
    found = []
    for subject in sorted(state.subjects):
        live = bool(state.versions(subject))
        wanted = not live if only_deleted else live or flag(request, "deleted")
        if wanted and has_prefix(subject, prefix):
            found.append(subject)
    return Answer(page(request, found))


def has_prefix(subject: str, prefix: str) -> bool:
    """Whether a subject is in the context of a prefix, and starts with its rest; `:*:` is every context."""
    if prefix.startswith(ALL_CONTEXTS):
        return subject.rpartition(":")[2].startswith(prefix.removeprefix(ALL_CONTEXTS))
    if prefix.startswith(":."):
        return subject.startswith(prefix.removeprefix(":.:"))
    return not subject.startswith(":.") and subject.startswith(prefix)


async def look_up(request: Request) -> Response:
    """Find the version of a subject that has the schema of the body."""
    here, subject = registry(request), subject_of(request)
    body = await body_of(request)
    every = here.state.versions(subject, deleted=flag(request, "deleted"))
    if not every:
        raise errors.subject_not_found(subject)
    new = new_schema(here.state, subject, body, normalize=_normalizes(request, subject))
    for stored in reversed(every):
        if new.is_same_as(here.state, stored):
            return Answer(version_body(request, stored))
    raise errors.schema_not_found()


def _normalizes(request: Request, subject: str) -> bool:
    if "normalize" in request.query_params:
        return flag(request, "normalize")
    return config_of(registry(request).state, subject).get("normalize") is True


async def register(request: Request) -> Response:
    here, subject = registry(request), subject_of(request)
    body = await body_of(request)
    normalize = _normalizes(request, subject)
    new = new_schema(here.state, subject, body, normalize=normalize)
    # Most producers register what is registered already; that needs no leader.
    existing = decisions.registered(here.state, subject, new)
    if existing is not None:
        return Answer(registered_body(existing))

    def decide() -> tuple[list[Record], Json]:
        records, stored = decisions.register(here.state, subject, new)
        return records, registered_body(stored)

    return await write(request, decide)


def registered_body(stored: StoredSchema) -> Json:
    """The response to a registration. Clients that get no schema keep the one they sent, in its format."""
    return {"id": stored.id, "version": stored.version, "guid": stored.guid}


async def list_versions(request: Request) -> Response:
    here, subject = registry(request), subject_of(request)
    only_deleted = flag(request, "deletedOnly")
    every = here.state.versions(subject, deleted=flag(request, "deleted") or only_deleted)
    wanted = [stored.version for stored in every if stored.deleted or not only_deleted]
    if not wanted:
        raise errors.subject_not_found(subject)
    return Answer(page(request, wanted))


async def get_version(request: Request) -> Response:
    return Answer(version_body(request, stored_version(request, deleted=flag(request, "deleted"))))


async def get_schema(request: Request) -> Response:
    stored = stored_version(request, deleted=flag(request, "deleted"))
    return Response(text_of(request, stored), media_type=Answer.media_type)


async def referenced_by(request: Request) -> Response:
    stored = stored_version(request, deleted=True)
    users = registry(request).state.users_of(stored.subject, stored.version)
    return Answer(list(dict.fromkeys(user.id for user in users)))


async def get_metadata(request: Request) -> Response:
    """The latest version whose metadata has the given properties."""
    here, subject = registry(request), subject_of(request)
    every = here.state.versions(subject, deleted=flag(request, "deleted"))
    if not every:
        raise errors.subject_not_found(subject)
    wanted = dict(
        zip(request.query_params.getlist("key"), request.query_params.getlist("value"), strict=False)
    )
    for stored in reversed(every):
        metadata = stored.others.get("metadata")
        properties: Any = metadata.get("properties") if isinstance(metadata, dict) else None
        if wanted.items() <= (properties or {}).items():
            return Answer(version_body(request, stored))
    raise errors.schema_not_found()


async def delete_subject(request: Request) -> Response:
    here, subject = registry(request), subject_of(request, follow_alias=False)
    permanent = flag(request, "permanent")
    return await write(request, lambda: decisions.remove_subject(here.state, subject, permanent=permanent))


async def delete_version(request: Request) -> Response:
    here, subject = registry(request), subject_of(request, follow_alias=False)
    permanent = flag(request, "permanent")

    def decide() -> tuple[list[Record], int]:
        stored = stored_version(request, deleted=True)
        return decisions.remove_version(here.state, subject, stored, permanent=permanent)

    return await write(request, decide)


ROUTES = [
    Route("/subjects", list_subjects, methods=["GET"]),
    Route("/subjects/{subject:name}", look_up, methods=["POST"]),
    Route("/subjects/{subject:name}", delete_subject, methods=["DELETE"]),
    Route("/subjects/{subject:name}/metadata", get_metadata, methods=["GET"]),
    Route("/subjects/{subject:name}/versions", register, methods=["POST"]),
    Route("/subjects/{subject:name}/versions", list_versions, methods=["GET"]),
    Route("/subjects/{subject:name}/versions/{version:name}", get_version, methods=["GET"]),
    Route("/subjects/{subject:name}/versions/{version:name}", delete_version, methods=["DELETE"]),
    Route("/subjects/{subject:name}/versions/{version:name}/schema", get_schema, methods=["GET"]),
    Route("/subjects/{subject:name}/versions/{version:name}/referencedby", referenced_by, methods=["GET"]),
]
