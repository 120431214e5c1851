"""Permissions that requests need: declared with each handler, checked before it runs.

Without an authorizer nothing is checked. With one, elements of a request that are not allowed never reach the
handler: their part of the response is an error, and the handler answers the rest. A handler that must hide
resources from a client, such as topics of the cluster, asks `Context.allows` and declares `Within`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from copy import copy
from dataclasses import dataclass
from types import GeneratorType
from typing import Any, TypeAlias

from millrace.api.context import Context
from millrace.api.failed_response import failed_response
from millrace.cluster.resources import ResourceType as ConfigResourceType
from millrace.deferred import Deferred
from millrace.errors import Error
from millrace.net.replies import CloseConnection
from millrace.security.authorizer import CLUSTER, Resource
from millrace.security.operations import Operation, ResourceType
from millrace.steps import Steps
from millrace.wire.schema import Array, Request

ERRORS = {
    ResourceType.TOPIC: Error.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: Error.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: Error.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}

ResourceOf: TypeAlias = "Callable[[Context, Any, Any], Resource | None]"
"""The resource of an element of a request (or of the request itself), None if the need does not apply."""


@dataclass(frozen=True, slots=True)
class Need:
    """An operation that the whole request, or each element of one of its lists, must be allowed."""

    operation: Operation
    resource: ResourceOf
    elements: str | None = None
    or_on_cluster: bool = False
    """Whether the same operation on the cluster is enough."""

    def denied(self, ctx: Context, request: Any, element: Any) -> Error:
        """The error if the need is not met."""
        resource = self.resource(ctx, request, element)
        if resource is None or ctx.allows(self.operation, resource):
            return Error.NONE
        if self.or_on_cluster and ctx.allows(self.operation, CLUSTER):
            return Error.NONE
        return ERRORS[resource.kind]


@dataclass(frozen=True, slots=True)
class Within:
    """An operation that the handler itself checks, because it hides resources that are not allowed."""

    operation: Operation
    kind: ResourceType


Authorize: TypeAlias = "tuple[Need | Within, ...]"

PUBLIC: Authorize = ()
"""For APIs that every client may use, even before it is authenticated."""


# Declaring


def needs(*needed: Need | Within) -> Authorize:
    """All that a request needs."""
    return needed


def on_cluster(operation: Operation, *, since: int = 0) -> Need:
    return Need(operation, lambda ctx, request, _: CLUSTER if ctx.api_version >= since else None)


def on_group(operation: Operation, name: str = "group_id") -> Need:
    """One group, in a field of the request."""
    return Need(operation, _named_by(name, ResourceType.GROUP))


def on_groups(operation: Operation, elements: str) -> Need:
    return Need(operation, lambda _, __, group: Resource(ResourceType.GROUP, _name_of(group)), elements)


def on_topics(operation: Operation, elements: str = "topics", *, or_on_cluster: bool = False) -> Need:
    return Need(operation, lambda ctx, _, topic: topic_resource(ctx, topic), elements, or_on_cluster)


def on_transactional_id(operation: Operation, name: str = "transactional_id") -> Need:
    return Need(operation, _named_by(name, ResourceType.TRANSACTIONAL_ID))


def on_transactional_ids(operation: Operation, elements: str) -> Need:
    return Need(operation, lambda _, __, name: Resource(ResourceType.TRANSACTIONAL_ID, name), elements)


def on_configs(operation: Operation) -> Need:
    """The topic, group or cluster whose configs are described or altered."""

    def resource(_: Context, __: Any, element: Any) -> Resource:
        if element.resource_type == ConfigResourceType.TOPIC:
            return Resource(ResourceType.TOPIC, element.resource_name)
        if element.resource_type == ConfigResourceType.GROUP:
            return Resource(ResourceType.GROUP, element.resource_name)
        return CLUSTER

    return Need(operation, resource, "resources")


GROUP_KEY, TRANSACTION_KEY = 0, 1
"""The kinds of keys of FindCoordinator."""


def _coordinated(_: Context, request: Any, key: Any) -> Resource | None:
    if request.key_type == GROUP_KEY:
        return Resource(ResourceType.GROUP, key)
    return Resource(ResourceType.TRANSACTIONAL_ID, key) if request.key_type == TRANSACTION_KEY else None


def _coordinated_alone(ctx: Context, request: Any, _: Any) -> Resource | None:
    is_sent = ctx.api_version in type(request).wire_fields["key"].versions
    return _coordinated(ctx, request, request.key) if is_sent else None


ON_COORDINATED_KEY = Need(Operation.DESCRIBE, _coordinated_alone)
ON_COORDINATED_KEYS = Need(Operation.DESCRIBE, _coordinated, "coordinator_keys")


def is_replica(request: Any) -> bool:
    """Whether a Fetch comes from a follower."""
    state = request.replica_state
    return bool((request.replica_id if state is None else state.replica_id) >= 0)


AS_REPLICA_OF_FETCH = Need(
    Operation.CLUSTER_ACTION, lambda _, request, __: CLUSTER if is_replica(request) else None
)
READ_FETCHED = Need(
    Operation.READ,
    lambda ctx, request, topic: None if is_replica(request) else topic_resource(ctx, topic),
    "topics",
)


def _idempotent_producer(ctx: Context, request: Any, _: Any) -> Resource | None:
    # A client that may write to any topic may do so idempotently (KIP-679).
    if request.transactional_id is not None or ctx.allows_any(Operation.WRITE, ResourceType.TOPIC):
        return None
    return CLUSTER


IDEMPOTENT_PRODUCER = Need(Operation.IDEMPOTENT_WRITE, _idempotent_producer)


def topic_resource(ctx: Context, topic: Any) -> Resource | None:
    """The topic that an element names. One with an unknown id is left to the handler."""
    name = _name_of(topic)
    if not name and getattr(topic, "topic_id", None):
        known = ctx.image.by_id.get(topic.topic_id)
        return None if known is None else Resource(ResourceType.TOPIC, known.name)
    return Resource(ResourceType.TOPIC, name)


def _named_by(field: str, kind: ResourceType) -> ResourceOf:
    def resource(ctx: Context, request: Any, _: Any) -> Resource | None:
        name = getattr(request, field)
        is_sent = ctx.api_version in type(request).wire_fields[field].versions
        return Resource(kind, name) if is_sent and name is not None else None

    return resource


def _name_of(element: Any) -> str:
    if isinstance(element, str):
        return element
    names = (getattr(element, field, None) for field in ("name", "topic", "group_id"))
    return next((name for name in names if name), "")


# Checking


def handle_authorized(
    ctx: Context, authorize: Authorize, handle: Callable[[Context, Any], Any], request: Request
) -> Any:
    """The outcome of a handler for the allowed part of a request, with errors for the rest."""
    needs = [need for need in authorize if isinstance(need, Need)]
    for need in needs:
        if need.elements is None and (error := need.denied(ctx, request, request)):
            return _refused(request, error)
    refused: list[Any] = []
    for need in needs:
        if need.elements is not None and getattr(request, need.elements):
            request, denied = _split(ctx, need, need.elements, request)
            refused += denied
            if denied and not getattr(request, need.elements):
                # An empty list would mean something else to the handler.
                return _merged(refused[0], refused[1:])
    if not refused:
        return handle(ctx, request)
    return _with_refused(handle(ctx, request), refused)


def _split(ctx: Context, need: Need, elements: str, request: Any) -> tuple[Any, list[Any]]:
    """The request without the elements that are denied, and a failed response for each error."""
    allowed: list[Any] = []
    by_error: dict[Error, list[Any]] = {}
    for element in getattr(request, elements):
        error = need.denied(ctx, request, element)
        (by_error.setdefault(error, []) if error else allowed).append(element)
    refused = [_refused_part(_part(request, elements, denied), error) for error, denied in by_error.items()]
    return _part(request, elements, allowed), refused


def _refused_part(part: Any, error: Error) -> Any:
    """A failed response of which every element has failed, but not the request as a whole."""
    response = _refused(part, error)
    if "error_code" in type(response).wire_fields:
        response.error_code = Error.NONE
    return response


def _part(request: Any, elements: str, kept: list[Any]) -> Any:
    part = copy(request)
    setattr(part, elements, kept)
    return part


def _refused(request: Any, error: Error) -> Any:
    if getattr(request, "acks", None) == 0:
        # A client that wants no response learns of a failure only by losing its connection.
        raise CloseConnection(f"{type(request).__name__} with acks=0: {error.name}")
    return failed_response(request, error, None)


def _with_refused(outcome: Any, refused: list[Any]) -> Any:
    if isinstance(outcome, Deferred):
        return outcome.convert(lambda response: _merged(response, refused))
    if isinstance(outcome, GeneratorType):
        return _steps_with_refused(outcome, refused)
    if isinstance(outcome, Coroutine):
        return _await_with_refused(outcome, refused)
    return _merged(outcome, refused)


def _steps_with_refused(steps: Steps[Any], refused: list[Any]) -> Steps[Any]:
    return _with_refused((yield from steps), refused)


async def _await_with_refused(outcome: Coroutine[Any, Any, Any], refused: list[Any]) -> Any:
    return _merged(await outcome, refused)


def _merged(response: Any, refused: list[Any]) -> Any:
    """A response with the items of failed ones added to its lists."""
    for failed in refused:
        for name in _lists(response):
            setattr(response, name, [*getattr(response, name), *getattr(failed, name)])
    return response


def _lists(response: Any) -> Iterator[str]:
    for name, field in type(response).wire_fields.items():
        if isinstance(field.type, Array) and getattr(response, name) is not None:
            yield name
