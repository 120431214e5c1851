"""OpenAPI descriptions, made from short tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from millrace import __version__

Json = dict[str, Any]

STRING: Json = {"type": "string"}
INTEGER: Json = {"type": "integer"}
BOOLEAN: Json = {"type": "boolean"}
OBJECT: Json = {"type": "object"}
ERROR: Json = {
    "type": "object",
    "properties": {"error_code": INTEGER, "message": STRING},
    "required": ["error_code", "message"],
}


def list_of(item: Json) -> Json:
    return {"type": "array", "items": item}


def fields(required: Mapping[str, Json], **optional: Json) -> Json:
    """An object with required and optional fields; it may have others."""
    return {"type": "object", "properties": {**required, **optional}, "required": list(required)}


class Operation(NamedTuple):
    """An operation of an API: what it takes and returns."""

    method: str
    path: str
    summary: str
    returns: Json | None
    """The body of success; None if there is none."""
    takes: Json | None = None
    query: Mapping[str, Json] = {}
    status: int = 200
    errors: Sequence[int] = ()
    path_types: Mapping[str, Json] = {}
    takes_type: str = ""
    """The content type of the request, if it is not that of the API."""


def description(title: str, content_type: str, operations: Sequence[Operation]) -> Json:
    """An OpenAPI 3.0 description of an API; every response has this content type."""
    paths: Json = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, content_type)
    return {"openapi": "3.0.3", "info": {"title": title, "version": __version__}, "paths": paths}


def _operation(operation: Operation, content_type: str) -> Json:
    names = re.findall(r"\{(\w+)\}", operation.path)
    # A name has at least one letter that is not a dot: clients and proxies drop `.` and `..` from paths.
    name = {
        "type": "string",
        "minLength": 1,
        "pattern": r"^[^/\x00-\x1f\x7f]*[A-Za-z0-9_][^/\x00-\x1f\x7f]*$",
    }
    parameters: list[Json] = [
        {"name": each, "in": "path", "required": True, "schema": operation.path_types.get(each, name)}
        for each in names
    ]
    parameters += [{"name": each, "in": "query", "schema": kind} for each, kind in operation.query.items()]
    success: Json = {"description": operation.summary}
    if operation.returns is not None:
        success["content"] = {content_type: {"schema": operation.returns}}
    failure = {"description": "An error.", "content": {content_type: {"schema": ERROR}}}
    described: Json = {
        "summary": operation.summary,
        "parameters": parameters,
        "responses": {str(operation.status): success} | {str(code): failure for code in operation.errors},
    }
    if operation.takes is not None:
        kind = operation.takes_type or content_type
        described["requestBody"] = {"required": True, "content": {kind: {"schema": operation.takes}}}
    return described
