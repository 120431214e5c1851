"""Producing records to a topic or a partition."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from millrace.registry.codecs import BadValue
from millrace.rest.errors import error, partition_not_found, topic_not_found
from millrace.rest.formats import PLAIN, SCHEMA_TYPES, WithSchema
from millrace.rest.producing import Delivered, DeliveryFailed
from millrace.rest.v2.answers import Answer, format_of_body
from millrace.rest.web import body_of, partition_of, proxy
from millrace.services.encoded_path import Route

# Codes of the errors that a single record may have.
_KAFKA_ERROR, _RETRIABLE_KAFKA_ERROR = 50002, 50003


async def produce_to_topic(request: Request) -> Response:
    record_format, body = format_of_body(request), await body_of(request)
    return await _produce(request, record_format, body, await _partitions(request), None)


async def produce_to_partition(request: Request) -> Response:
    record_format, body = format_of_body(request), await body_of(request)
    partition, existing = partition_of(request.path_params["partition"]), await _partitions(request)
    if partition not in existing:
        raise partition_not_found(request.path_params["partition"][:20])
    return await _produce(request, record_format, body, existing, partition)


async def _partitions(request: Request) -> set[int]:
    """The partitions of the topic. Raises ApiError if it does not exist."""
    name = request.path_params["topic"]
    topic = await proxy(request).topics.get(name)
    if topic is None:
        raise topic_not_found(name)
    return {partition.index for partition in topic.partitions}


async def _produce(
    request: Request, record_format: str, body: dict[str, Any], indexes: set[int], partition: int | None
) -> Response:
    topic, here = request.path_params["topic"], proxy(request)
    records = body.get("records")
    if not isinstance(records, list) or not records or not all(isinstance(each, dict) for each in records):
        raise error(42206, "Payload error: records is a list of objects, and not empty")
    has_keys = any(record.get("key") is not None for record in records)
    key = await _schema(request, record_format, body, "key", is_needed=has_keys)
    value = await _schema(request, record_format, body, "value", is_needed=True)
    encoded = []
    for record in records:
        wanted = record.get("partition") if partition is None else partition
        if wanted is not None and wanted not in indexes:
            raise partition_not_found(str(wanted)[:20])
        try:
            encoded.append((key.encode(record.get("key")), value.encode(record.get("value")), wanted))
        except BadValue as failure:
            raise error(42203, f"Conversion of JSON to {record_format} failed: {failure}") from None
    sent = [
        await here.producer.send(topic, data_key, data, partition=wanted)
        for data_key, data, wanted in encoded
    ]
    outcomes = await asyncio.gather(*sent, return_exceptions=True)
    return Answer(
        {
            "offsets": [_offset(outcome) for outcome in outcomes],
            "key_schema_id": key.schema_id,
            "value_schema_id": value.schema_id,
        }
    )


def _offset(outcome: Delivered | BaseException) -> dict[str, Any]:
    match outcome:
        case Delivered():
            return {
                "partition": outcome.partition,
                "offset": outcome.offset,
                "error_code": None,
                "error": None,
            }
        case DeliveryFailed():
            code = _RETRIABLE_KAFKA_ERROR if outcome.retriable else _KAFKA_ERROR
            return {"partition": None, "offset": None, "error_code": code, "error": outcome.message}
    assert isinstance(outcome, BaseException)
    raise outcome


async def _schema(
    request: Request, record_format: str, body: dict[str, Any], part: str, *, is_needed: bool
) -> WithSchema:
    """The schema that a body gives for its keys or values, by id or as text. Raises ApiError."""
    if record_format not in SCHEMA_TYPES:
        return WithSchema(PLAIN[record_format])
    schemas, schema_type = proxy(request).schemas, SCHEMA_TYPES[record_format]
    schema_id, text = body.get(f"{part}_schema_id"), body.get(f"{part}_schema")
    if isinstance(schema_id, int):
        return await asyncio.to_thread(schemas.by_id, schema_type, schema_id)
    if isinstance(text, str):
        topic = request.path_params["topic"]
        return await asyncio.to_thread(schemas.by_text, schema_type, text, topic, part)
    if is_needed:
        code = 42201 if part == "key" else 42202
        raise error(code, f"Request includes {part}s but does not include {part} schema")
    return WithSchema(PLAIN["binary"])


ROUTES = [
    Route("/topics/{topic:name}", produce_to_topic, methods=["POST"]),
    Route("/topics/{topic:name}/partitions/{partition:name}", produce_to_partition, methods=["POST"]),
]
