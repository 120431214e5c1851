"""The registry itself: liveness, contexts, identity and version."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from millrace import __version__
from millrace.registry.routes.web import Answer, registry
from millrace.services.encoded_path import Route
from millrace.services.errors import Json


async def root(request: Request) -> Response:
    return Answer({})


async def list_contexts(request: Request) -> Response:
    return Answer(registry(request).state.contexts())


async def get_identity(request: Request) -> Response:
    here = registry(request)
    clusters = {"kafka-cluster": here.cluster_id, "schema-registry-cluster": here.group}
    return Answer({"id": "", "scope": {"path": [], "clusters": clusters}})


async def get_version(request: Request) -> Response:
    return Answer({"version": __version__, "commitId": "", "name": "millrace"})


async def get_openapi(request: Request) -> Response:
    from millrace.registry.openapi import openapi

    return Json(openapi())


ROUTES = [
    Route("/openapi.json", get_openapi, methods=["GET"]),
    Route("/", root, methods=["GET", "POST"]),
    Route("/contexts", list_contexts, methods=["GET"]),
    Route("/v1/metadata/id", get_identity, methods=["GET"]),
    Route("/v1/metadata/version", get_version, methods=["GET"]),
]
