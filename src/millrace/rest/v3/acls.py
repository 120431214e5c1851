"""ACLs: list, create one or several, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from millrace.rest.errors import error
from millrace.rest.v3.resources import Json, Links, links_of
from millrace.rest.web import body_of
from millrace.services.encoded_path import Route
from millrace.services.errors import Json as Answer

_FIELDS = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
_SECONDS = 30.0


def _body(binding: Any, links: Links) -> Json:
    values = {
        "resource_type": _type_name(binding.restype),
        "resource_name": binding.name,
        "pattern_type": binding.resource_pattern_type.name,
        "principal": binding.principal,
        "host": binding.host,
        "operation": binding.operation.name,
        "permission": binding.permission_type.name,
    }
    return links.resource("KafkaAcl", ("acls",), values)


def _type_name(resource_type: Any) -> str:
    return "CLUSTER" if resource_type.name == "BROKER" else str(resource_type.name)


def _enums() -> dict[str, Any]:
    from confluent_kafka.admin import AclOperation, AclPermissionType, ResourcePatternType, ResourceType

    return {
        "resource_type": ResourceType,
        "pattern_type": ResourcePatternType,
        "operation": AclOperation,
        "permission": AclPermissionType,
    }


def _values(given: Mapping[str, Any], *, is_filter: bool) -> list[Any]:
    """The fields of an ACL in the order of the client library; a filter may leave fields out."""
    values: list[Any] = []
    for name in _FIELDS:
        text = given.get(name)
        enum = _enums().get(name)
        if text is None:
            if not is_filter:
                raise error(40002, f"{name} is missing")
            values.append(None if enum is None else enum.ANY)
        elif enum is None:
            values.append(str(text))
        else:
            key = str(text).upper().replace("-", "_")
            key = "BROKER" if name == "resource_type" and key == "CLUSTER" else key
            if key not in enum.__members__:
                raise error(40002, f"{name} has no value {str(text)[:100]}")
            values.append(enum[key])
    return values


async def _admin(request: Request, call: str, *arguments: Any) -> dict[Any, Any]:
    """Call the client library's administration, which has futures of its own."""
    from confluent_kafka import KafkaException

    def run() -> dict[Any, Any]:
        admin = request.app.state.admin_client()
        futures = getattr(admin, call)(*arguments, request_timeout=_SECONDS)
        if not isinstance(futures, dict):
            futures = {None: futures}
        return {key: future.result(_SECONDS + 5) for key, future in futures.items()}

    try:
        return await asyncio.to_thread(run)
    except KafkaException as failure:
        raise error(
            403 if "AUTHORIZATION" in failure.args[0].name() else 400, failure.args[0].str()
        ) from None
    except (ValueError, TypeError) as failure:
        raise error(40002, str(failure)) from None


async def list_all(request: Request) -> Response:
    from confluent_kafka.admin import AclBindingFilter

    links = await links_of(request)
    wanted = AclBindingFilter(*_values(request.query_params, is_filter=True))
    (found,) = (await _admin(request, "describe_acls", wanted)).values()
    return Answer(links.collection("KafkaAclList", ("acls",), [_body(each, links) for each in found]))


async def create(request: Request) -> Response:
    await _create(request, [await body_of(request)])
    return Response(status_code=201)


async def create_several(request: Request) -> Response:
    data = (await body_of(request)).get("data")
    if not isinstance(data, list) or not data or not all(isinstance(each, dict) for each in data):
        raise error(40002, "data is a list of ACLs")
    await _create(request, data)
    return Response(status_code=201)


async def _create(request: Request, bodies: list[Json]) -> None:
    from confluent_kafka.admin import AclBinding

    await links_of(request)
    try:
        bindings = [AclBinding(*_values(body, is_filter=False)) for body in bodies]
    except ValueError as failure:
        raise error(40002, str(failure)) from None
    await _admin(request, "create_acls", bindings)


async def delete(request: Request) -> Response:
    from confluent_kafka.admin import AclBindingFilter

    links = await links_of(request)
    if not any(name in request.query_params for name in _FIELDS):
        raise error(40002, f"name what to delete: {', '.join(_FIELDS)}")
    wanted = AclBindingFilter(*_values(request.query_params, is_filter=True))
    (found,) = (await _admin(request, "delete_acls", [wanted])).values()
    return Answer({"data": [_body(each, links) for each in found]})


_ACLS = "/clusters/{cluster:name}/acls"
ROUTES = [
    Route(_ACLS, list_all, methods=["GET"]),
    Route(_ACLS, create, methods=["POST"]),
    Route(f"{_ACLS}:batch", create_several, methods=["POST"]),
    Route(_ACLS, delete, methods=["DELETE"]),
]
