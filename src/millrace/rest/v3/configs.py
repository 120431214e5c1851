"""Configuration of topics and brokers: describe, change one, change several."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from millrace.admin.configs import (
    BROKER_DEFAULTS,
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ResourceType,
    alter_configs,
    describe_configs,
    topic_resource,
)
from millrace.rest.errors import error
from millrace.rest.v3.resources import Json, Links, cluster_of
from millrace.rest.v3.topics import topic_of
from millrace.rest.web import body_of, proxy
from millrace.services.encoded_path import Route
from millrace.services.errors import Json as Answer

_OPERATIONS = {"SET": ConfigOperation.SET, "DELETE": ConfigOperation.DELETE}


class _Place:
    """A resource with configuration, and the names that it has in bodies and paths."""

    def __init__(self, kind: str, resource: ConfigResource, path: tuple[object, ...], fields: Json) -> None:
        self.kind, self.resource, self.path, self.fields = kind, resource, path, fields


async def _place(request: Request) -> tuple[_Place, Links]:
    """The resource that the path names. Raises ApiError."""
    cluster, links = await cluster_of(request)
    if "topic" in request.path_params:
        topic = await topic_of(request)
        path = ("topics", topic.name, "configs")
        return _Place("KafkaTopicConfig", topic_resource(topic.name), path, {"topic_name": topic.name}), links
    if "broker" in request.path_params:
        name = request.path_params["broker"]
        if name not in map(str, cluster.broker_ids):
            raise error(404, f"Broker {name[:100]} cannot be found.")
        resource = ConfigResource(ResourceType.BROKER, name)
        fields: Json = {"broker_id": int(name)}
        return _Place("KafkaBrokerConfig", resource, ("brokers", name, "configs"), fields), links
    defaults = ConfigResource(ResourceType.BROKER, BROKER_DEFAULTS)
    return _Place("KafkaClusterConfig", defaults, ("broker-configs",), {"config_type": "BROKER"}), links


def _body(place: _Place, entry: ConfigEntry, links: Links) -> Json:
    return links.resource(
        place.kind,
        (*place.path, entry.name),
        {
            **place.fields,
            "name": entry.name,
            "value": None if entry.is_sensitive else entry.value,
            "is_default": entry.is_default,
            "is_read_only": entry.is_read_only,
            "is_sensitive": entry.is_sensitive,
            "source": entry.source.name,
            "synonyms": [
                {"name": synonym.name, "value": synonym.value, "source": synonym.source.name}
                for synonym in entry.synonyms
            ],
        },
    )


async def _entries(request: Request, place: _Place) -> list[ConfigEntry]:
    return (await describe_configs(proxy(request).client, [place.resource]))[place.resource]


async def list_all(request: Request) -> Response:
    place, links = await _place(request)
    data = [_body(place, entry, links) for entry in await _entries(request, place)]
    return Answer(links.collection(f"{place.kind}List", place.path, data))


async def get(request: Request) -> Response:
    place, links = await _place(request)
    for entry in await _entries(request, place):
        if entry.name == request.path_params["name"]:
            return Answer(_body(place, entry, links))
    raise error(404, f"Config {request.path_params['name'][:100]} cannot be found.")


async def _change(
    request: Request, place: _Place, changes: list[ConfigChange], validate_only: bool
) -> Response:
    outcomes = await alter_configs(
        proxy(request).client, {place.resource: changes}, validate_only=validate_only
    )
    outcomes.all()
    return Response(status_code=204)


async def put(request: Request) -> Response:
    place, _ = await _place(request)
    value = (await body_of(request)).get("value")
    change = ConfigChange(request.path_params["name"], None if value is None else str(value))
    if value is None:
        change = ConfigChange(request.path_params["name"], operation=ConfigOperation.DELETE)
    return await _change(request, place, [change], False)


async def reset(request: Request) -> Response:
    place, _ = await _place(request)
    change = ConfigChange(request.path_params["name"], operation=ConfigOperation.DELETE)
    return await _change(request, place, [change], False)


async def alter(request: Request) -> Response:
    """Change several settings at once."""
    place, _ = await _place(request)
    body = await body_of(request)
    data: Any = body.get("data")
    if not isinstance(data, list) or not all(isinstance(each, dict) for each in data):
        raise error(40002, "data is a list of settings")
    changes = []
    for each in data:
        operation = _OPERATIONS.get(str(each.get("operation", "SET")).upper())
        if operation is None or not isinstance(each.get("name"), str):
            raise error(40002, "each setting has a name, and the operation SET or DELETE")
        value = each.get("value")
        changes.append(ConfigChange(each["name"], None if value is None else str(value), operation))
    return await _change(request, place, changes, bool(body.get("validate_only", False)))


_CLUSTER = "/clusters/{cluster:name}"
ROUTES = [
    route
    for base in (
        f"{_CLUSTER}/topics/{{topic:name}}/configs",
        f"{_CLUSTER}/brokers/{{broker:name}}/configs",
        f"{_CLUSTER}/broker-configs",
    )
    for route in (
        Route(base, list_all, methods=["GET"]),
        Route(f"{base}:alter", alter, methods=["POST"]),
        Route(f"{base}/{{name:name}}", get, methods=["GET"]),
        Route(f"{base}/{{name:name}}", put, methods=["PUT"]),
        Route(f"{base}/{{name:name}}", reset, methods=["DELETE"]),
    )
]
