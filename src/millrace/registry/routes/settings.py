"""Configuration and modes, of everything and of a subject."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from millrace.registry import errors, settings
from millrace.registry.names import context_scope
from millrace.registry.records import Json, Record, config_key, mode_key
from millrace.registry.routes.web import Answer, body_of, flag, registry, subject_of, write
from millrace.services.encoded_path import Route


def _scope(request: Request) -> str | None:
    """The subject of the path, its context, or None for everything."""
    if "subject" in request.path_params:
        return subject_of(request, follow_alias=False)
    context = request.path_params.get("context")
    return None if context is None else context_scope(context)


# Configuration


async def get_config(request: Request) -> Response:
    state, scope = registry(request).state, _scope(request)
    if scope is None:
        return Answer(settings.global_config(state))
    if flag(request, "defaultToGlobal"):
        return Answer(settings.config_of(state, scope))
    if scope not in state.configs:
        raise errors.no_subject_compatibility(scope)
    return Answer(state.configs[scope])


async def put_config(request: Request) -> Response:
    here, scope = registry(request), _scope(request)
    body = await body_of(request)
    return await write(request, lambda: (settings.change_config(here.state, scope, body), body))


async def delete_config(request: Request) -> Response:
    here, scope = registry(request), _scope(request)

    def decide() -> tuple[list[Record], Json]:
        if scope is not None and scope not in here.state.configs:
            raise errors.no_subject_compatibility(scope)
        settings.require_writable(here.state, scope or "")
        old = here.state.configs.get(scope, settings.DEFAULT_CONFIG)
        return [Record(config_key(scope), None)], old

    return await write(request, decide)


# Modes


async def get_mode(request: Request) -> Response:
    state, scope = registry(request).state, _scope(request)
    if scope is None:
        return Answer({"mode": state.modes.get(None, settings.DEFAULT_MODE)})
    if flag(request, "defaultToGlobal"):
        return Answer({"mode": settings.mode_of(state, scope)})
    if scope not in state.modes:
        raise errors.no_subject_mode(scope)
    return Answer({"mode": state.modes[scope]})


async def put_mode(request: Request) -> Response:
    here, scope, force = registry(request), _scope(request), flag(request, "force")
    body = await body_of(request)

    def decide() -> tuple[list[Record], Json]:
        records = settings.change_mode(here.state, scope, body.get("mode"), force=force)
        return records, {"mode": records[0].value["mode"] if records[0].value else None}

    return await write(request, decide)


async def delete_mode(request: Request) -> Response:
    here, scope = registry(request), _scope(request)

    def decide() -> tuple[list[Record], Json]:
        if scope is not None and scope not in here.state.modes:
            raise errors.no_subject_mode(scope)
        return [Record(mode_key(scope), None)], {"mode": here.state.modes.get(scope, settings.DEFAULT_MODE)}

    return await write(request, decide)


ROUTES = [
    Route(path, handler, methods=[method])
    for path, handlers in (
        ("/config", (get_config, put_config, delete_config)),
        ("/config/{subject:name}", (get_config, put_config, delete_config)),
        ("/mode", (get_mode, put_mode, delete_mode)),
        ("/mode/{subject:name}", (get_mode, put_mode, delete_mode)),
    )
    for method, handler in zip(("GET", "PUT", "DELETE"), handlers, strict=True)
]
