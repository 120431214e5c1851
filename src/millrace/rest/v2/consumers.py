"""Consumer instances: create, subscribe or assign, read, seek, commit, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from millrace.rest.consumers import MAX_BYTES, Instance
from millrace.rest.errors import error
from millrace.rest.formats import SCHEMA_TYPES, decode_plain
from millrace.rest.v2.answers import Answer, no_content, require_accepted
from millrace.rest.web import body_of, proxy
from millrace.services.encoded_path import Route
from millrace.services.errors import ApiError

_COMMIT_SECONDS = 30
_BEGINNING, _END = -2, -1
_NO_OFFSET = -1001


def instance_of(request: Request) -> Instance:
    return proxy(request).instances.get(request.path_params["group"], request.path_params["instance"])


async def create(request: Request) -> Response:
    body = await body_of(request, optional=True)
    group = request.path_params["group"]
    instance = proxy(request).instances.create(group, body)
    base = f"{str(request.base_url).rstrip('/')}/consumers/{request.scope['path'].split('/')[2]}"
    return Answer({"instance_id": instance.name, "base_uri": f"{base}/instances/{instance.name}"})


async def delete(request: Request) -> Response:
    await proxy(request).instances.delete(request.path_params["group"], request.path_params["instance"])
    return no_content()


# Subscriptions and assignments


async def subscribe(request: Request) -> Response:
    instance, body = instance_of(request), await body_of(request)
    topics, pattern = body.get("topics"), body.get("topic_pattern")
    if (topics is None) == (pattern is None):
        raise error(42206, "Payload error: give topics or topic_pattern")
    if instance.is_assigned:
        raise error(40903, "Subscription to topics, partitions and pattern are mutually exclusive.")
    # The client library takes a name that begins with ^ for a pattern.
    names = [f"^{pattern.removeprefix('^')}"] if isinstance(pattern, str) else topics
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
        raise error(42206, "Payload error: topics is a list of names, and not empty")
    await _run(instance, lambda: instance.consumer.subscribe(names))
    instance.topics = names
    return no_content()


async def get_subscription(request: Request) -> Response:
    return Answer({"topics": instance_of(request).topics})


async def unsubscribe(request: Request) -> Response:
    instance = instance_of(request)
    await _run(instance, instance.consumer.unsubscribe)
    instance.topics, instance.is_assigned = [], False
    return no_content()


async def assign(request: Request) -> Response:
    instance, body = instance_of(request), await body_of(request)
    partitions = _partitions(body.get("partitions"))
    if instance.topics:
        raise error(40903, "Subscription to topics, partitions and pattern are mutually exclusive.")
    await _run(instance, lambda: instance.consumer.assign(partitions))
    instance.is_assigned = True
    return no_content()


async def get_assignment(request: Request) -> Response:
    instance = instance_of(request)
    found = await _run(instance, instance.consumer.assignment)
    return Answer({"partitions": [{"topic": each.topic, "partition": each.partition} for each in found]})


# Positions


async def seek(request: Request) -> Response:
    return await _seek(request, _partitions((await body_of(request)).get("offsets"), with_offset=True))


async def seek_to_beginning(request: Request) -> Response:
    return await _seek_all(request, _BEGINNING)


async def seek_to_end(request: Request) -> Response:
    return await _seek_all(request, _END)


async def _seek_all(request: Request, offset: int) -> Response:
    partitions = _partitions((await body_of(request)).get("partitions"))
    for partition in partitions:
        partition.offset = offset
    return await _seek(request, partitions)


async def _seek(request: Request, partitions: list[Any]) -> Response:
    instance = instance_of(request)

    def change() -> None:
        assigned = {(each.topic, each.partition) for each in instance.consumer.assignment()}
        for partition in partitions:
            where = f"{partition.topic}-{partition.partition}"
            if (partition.topic, partition.partition) not in assigned:
                raise error(40903, f"No current assignment for partition {where}")
            instance.consumer.seek(partition)

    await _run(instance, change)
    return no_content()


# Records


async def read(request: Request) -> Response:
    instance = instance_of(request)
    kind = require_accepted(request, instance.format)
    timeout_ms = _query(request, "timeout", instance.timeout_ms)
    max_bytes = min(_query(request, "max_bytes", MAX_BYTES), MAX_BYTES)
    if not instance.topics and not instance.is_assigned:
        raise error(40903, "Consumer is not subscribed to any topics or assigned any partitions")
    messages = await _run(instance, lambda: instance.fetch(timeout_ms, max_bytes))
    # The registry may be asked for schemas.
    records, failure = await asyncio.to_thread(_converted, messages, _decoder(request, instance.format))
    if failure is not None:
        # Those that are not returned are read again by the next request.
        await _run(instance, lambda: instance.rewind(messages[len(records) :]))
        if not records:
            raise _unconverted(messages[0], failure)
    return Answer(records, media_type=kind)


def _converted(
    messages: list[Any], decode: Callable[[bytes | None], Any]
) -> tuple[list[dict[str, Any]], ApiError | None]:
    """Records in the form of a response, up to the first that cannot be converted, and why it cannot."""
    records: list[dict[str, Any]] = []
    for message in messages:
        try:
            key, value = decode(message.key()), decode(message.value())
        except ApiError as failure:
            return records, failure
        records.append(
            {
                "topic": message.topic(),
                "key": key,
                "value": value,
                "partition": message.partition(),
                "offset": message.offset(),
            }
        )
    return records, None


def _unconverted(message: Any, failure: ApiError) -> ApiError:
    where = f"topic {message.topic()}, partition {message.partition()}, offset {message.offset()}"
    return error(failure.code, f"{failure.message} ({where}; to skip it, POST the next offset to /positions)")


def _decoder(request: Request, name: str) -> Callable[[bytes | None], Any]:
    if name not in SCHEMA_TYPES:
        return lambda data: decode_plain(name, data)
    schemas, schema_type = proxy(request).schemas, SCHEMA_TYPES[name]
    return lambda data: schemas.decode(schema_type, data)


def _query(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, str(default))
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        raise error(42206, f"Payload error: {name} is not a number")
    return min(int(text), 600_000) if name == "timeout" else int(text)


# Offsets


async def commit(request: Request) -> Response:
    from confluent_kafka import KafkaException

    instance, body = instance_of(request), await body_of(request, optional=True)
    offsets = None
    if body.get("offsets") is not None:
        offsets = _partitions(body["offsets"], with_offset=True)
        for each in offsets:
            # A client names the last record it has handled; the log keeps the next one.
            each.offset += 1

    def change() -> None:
        try:
            if offsets is None:
                instance.consumer.commit(asynchronous=False)
            else:
                instance.consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as failure:
            if failure.args[0].name() != "_NO_OFFSET":
                raise

    await _run(instance, change)
    return Answer(None, status_code=200)


async def get_committed(request: Request) -> Response:
    instance, body = instance_of(request), await body_of(request, optional=True)
    asked = _partitions(body.get("partitions") or [])
    found = await _run(instance, lambda: instance.consumer.committed(asked, _COMMIT_SECONDS)) if asked else []
    offsets = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "offset": each.offset,
            "metadata": each.metadata or "",
        }
        for each in found
        if each.offset != _NO_OFFSET
    ]
    return Answer({"offsets": offsets})


async def _run(instance: Instance, function: Callable[[], Any]) -> Any:
    from confluent_kafka import KafkaException

    try:
        return await instance.run(function)
    except KafkaException as failure:
        raise error(50002, f"Kafka error: {failure.args[0].str()}") from None
    except RuntimeError as failure:
        raise error(40903, f"Illegal state: {failure}") from None


def _partitions(value: Any, *, with_offset: bool = False) -> list[Any]:
    from confluent_kafka import TopicPartition

    needed = ("partition", "offset") if with_offset else ("partition",)
    if not isinstance(value, list):
        raise error(42206, "Payload error: a list of topics and partitions is missing")
    read = []
    for each in value:
        is_valid = isinstance(each, dict) and isinstance(each.get("topic"), str) and each["topic"]
        if not is_valid or not all(_is_number(each.get(name)) for name in needed):
            raise error(42206, f"Payload error: each entry has topic, {' and '.join(needed)}")
        partition = TopicPartition(each["topic"], each["partition"])
        if with_offset:
            partition.offset = each["offset"]
        read.append(partition)
    return read


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


_INSTANCE = "/consumers/{group:name}/instances/{instance:name}"
ROUTES = [
    Route("/consumers/{group:name}", create, methods=["POST"]),
    Route(_INSTANCE, delete, methods=["DELETE"]),
    Route(f"{_INSTANCE}/subscription", subscribe, methods=["POST"]),
    Route(f"{_INSTANCE}/subscription", get_subscription, methods=["GET"]),
    Route(f"{_INSTANCE}/subscription", unsubscribe, methods=["DELETE"]),
    Route(f"{_INSTANCE}/assignments", assign, methods=["POST"]),
    Route(f"{_INSTANCE}/assignments", get_assignment, methods=["GET"]),
    Route(f"{_INSTANCE}/positions", seek, methods=["POST"]),
    Route(f"{_INSTANCE}/positions/beginning", seek_to_beginning, methods=["POST"]),
    Route(f"{_INSTANCE}/positions/end", seek_to_end, methods=["POST"]),
    Route(f"{_INSTANCE}/records", read, methods=["GET"]),
    Route(f"{_INSTANCE}/offsets", commit, methods=["POST"]),
    Route(f"{_INSTANCE}/offsets", get_committed, methods=["GET"]),
]
