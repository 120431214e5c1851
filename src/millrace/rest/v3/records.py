"""Producing: a stream of records in one request, with a result for each; or a batch of them."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, NamedTuple

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from millrace.registry.client import subject_name
from millrace.registry.codecs import BadValue
from millrace.rest.errors import error
from millrace.rest.formats import PLAIN, WithSchema
from millrace.rest.json_stream import BadStream, objects
from millrace.rest.producing import Delivered, DeliveryFailed
from millrace.rest.v3.resources import links_of
from millrace.rest.web import body_of, proxy
from millrace.services.encoded_path import Route
from millrace.services.errors import ApiError
from millrace.services.errors import Json as Answer

logger = logging.getLogger(__name__)

# Results that a stream waits for at a time; the client is not read any further until the oldest is there.
WINDOW = 500
_MAX_BATCH = 1000
_SCHEMA_TYPES = {"AVRO": "AVRO", "JSONSCHEMA": "JSON", "PROTOBUF": "PROTOBUF"}

Json = dict[str, Any]


class _Sent(NamedTuple):
    """A record on its way."""

    result: asyncio.Future[Delivered]
    key: Json | None
    value: Json | None


async def produce(request: Request) -> Response:
    links, topic = await links_of(request), await _topic(request)
    return _Stream(request, lambda data: _send(request, topic, data), links.cluster_id, topic)


async def _topic(request: Request) -> str:
    """The topic that the path names. Raises ApiError if it does not exist."""
    name: str = request.path_params["topic"]
    if await proxy(request).topics.get(name) is None:
        raise error(40403, "This server does not host this topic-partition.")
    return name


class _Stream(Response):
    """Reads records while it writes their results, in the same order."""

    def __init__(
        self,
        request: Request,
        send_record: Callable[[Any], Coroutine[Any, Any, _Sent]],
        cluster_id: str,
        topic: str,
    ) -> None:
        super().__init__()
        self._request, self._send_record = request, send_record
        self._cluster_id, self._topic = cluster_id, topic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            async for result in self._results():
                body = msgspec.json.encode(result) + b"\r\n"
                await send({"type": "http.response.body", "body": body, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (ClientDisconnect, OSError):
            logger.info("the client of a stream of records has closed its connection")

    async def _results(self) -> AsyncIterator[Json]:
        # While it is full, the client is not read any further.
        waiting: asyncio.Queue[_Sent | Json | None] = asyncio.Queue(WINDOW)
        reading = asyncio.ensure_future(self._read(waiting))
        try:
            while (sent := await waiting.get()) is not None:
                yield sent if isinstance(sent, dict) else await _result(sent, self._cluster_id, self._topic)
            await reading
        finally:
            reading.cancel()

    async def _read(self, waiting: asyncio.Queue[_Sent | Json | None]) -> None:
        """Send the records of the request; None follows the last one."""
        try:
            async for data in objects(self._request.stream()):
                await waiting.put(await self._sent(data))
        except BadStream as failure:
            await waiting.put({"error_code": 400, "message": f"Error processing message: {failure}"})
        finally:
            await waiting.put(None)

    async def _sent(self, data: bytes) -> _Sent | Json:
        try:
            record = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError) as failure:
            return {"error_code": 400, "message": f"Error processing message: {failure}"}
        try:
            return await self._send_record(record)
        except ApiError as failure:
            return {"error_code": failure.code, "message": failure.message}


async def _result(sent: _Sent, cluster_id: str, topic: str) -> Json:
    try:
        place = await sent.result
    except DeliveryFailed as failure:
        return {"error_code": 503 if failure.retriable else 400, "message": failure.message}
    body: Json = {
        "error_code": 200,
        "cluster_id": cluster_id,
        "topic_name": topic,
        "partition_id": place.partition,
        "offset": place.offset,
        "timestamp": _timestamp(place.timestamp_ms),
    }
    if sent.key is not None:
        body["key"] = sent.key
    if sent.value is not None:
        body["value"] = sent.value
    return body


def _timestamp(milliseconds: int) -> str:
    from datetime import UTC, datetime

    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


async def _send(request: Request, topic: str, record: Any) -> _Sent:
    """Hand a record to the producer. Raises ApiError if it is not valid."""
    if not isinstance(record, dict):
        raise error(42206, "Payload error: a record is an object")
    partition = record.get("partition_id")
    if partition is not None and (
        not isinstance(partition, int) or isinstance(partition, bool) or partition < 0
    ):
        raise error(42206, "Payload error: partition_id is not a number")
    key, key_size = await _part(request, topic, "key", record.get("key"))
    value, value_size = await _part(request, topic, "value", record.get("value"))
    result = await proxy(request).producer.send(
        topic,
        key,
        value,
        partition=partition,
        headers=_headers(record.get("headers")),
        timestamp_ms=_time(record.get("timestamp")),
    )
    return _Sent(result, key_size, value_size)


async def _part(request: Request, topic: str, part: str, data: Any) -> tuple[bytes | None, Json | None]:
    """The bytes of a key or value, and its description for the result. Raises ApiError."""
    if data is None:
        return None, None
    if not isinstance(data, dict):
        raise error(42206, f"Payload error: {part} is an object with type and data")
    kind = str(data.get("type") or "").upper()
    content = data.get("data")
    if kind in ("BINARY", "JSON", "STRING"):
        with_schema = WithSchema(PLAIN[kind.lower()])
    else:
        with_schema = await _schema(request, topic, part, kind, data)
        kind = kind or "AVRO"
    if content is None and kind != "JSON":
        return None, {"type": kind, "size": 0}
    try:
        encoded = b"null" if content is None else with_schema.encode(content)
    except BadValue as failure:
        raise error(42206, f"Bad Request: {failure}") from None
    described: Json = {"type": kind, "size": len(encoded or b"")}
    if with_schema.schema_id is not None:
        described["schema_id"] = with_schema.schema_id
    return encoded, described


async def _schema(request: Request, topic: str, part: str, kind: str, data: Json) -> WithSchema:
    """The schema of a key or value: by id, by version of a subject, or as text. Raises ApiError."""
    schemas = proxy(request).schemas
    if kind and kind not in _SCHEMA_TYPES:
        raise error(42206, f"Payload error: {part} has no type {kind[:100]}")
    schema_type = _SCHEMA_TYPES.get(kind)
    if isinstance(data.get("schema_id"), int):
        return await asyncio.to_thread(schemas.by_id, schema_type, data["schema_id"])
    subject = data.get("subject")
    if subject is None and isinstance(data.get("subject_name_strategy"), str):
        strategy = data["subject_name_strategy"].title().replace("_", "") + "Strategy"
        subject = subject_name(topic, part, "", strategy) if strategy == "TopicNameStrategy" else None
    if isinstance(data.get("schema"), str):
        if schema_type is None:
            raise error(42206, f"Payload error: {part} has a schema, but no type")
        return await asyncio.to_thread(schemas.by_text, schema_type, data["schema"], topic, part, subject)
    version = data.get("schema_version", "latest")
    if not isinstance(version, int) and version != "latest":
        raise error(42206, f"Payload error: schema_version of {part} is not a number")
    return await asyncio.to_thread(schemas.by_version, subject or f"{topic}-{part}", version)


def _headers(value: Any) -> list[tuple[str, bytes | None]]:
    if value is None:
        return []
    try:
        return [
            (
                str(each["name"]),
                None if each.get("value") is None else base64.b64decode(each["value"], validate=True),
            )
            for each in value
        ]
    except (TypeError, KeyError, AttributeError, binascii.Error, ValueError):
        raise error(42206, "Payload error: headers have a name, and a value in base64") from None


def _time(value: Any) -> int | None:
    from datetime import datetime

    if value is None:
        return None
    try:
        return int(datetime.fromisoformat(str(value)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise error(42206, "Payload error: timestamp is not a time in ISO 8601") from None


# Batches


async def produce_batch(request: Request) -> Response:
    """Send up to a thousand records, each with an id of the client's."""
    links, body = await links_of(request), await body_of(request)
    topic = await _topic(request)
    entries = body.get("entries")
    if not isinstance(entries, list) or not all(isinstance(each, dict) and "id" in each for each in entries):
        raise error(42206, "Payload error: entries is a list of records with an id each")
    if not 0 < len(entries) <= _MAX_BATCH:
        raise error(42208, f"Batch size error: {len(entries)} entries; 1 to {_MAX_BATCH} are allowed")
    if len({str(entry["id"]) for entry in entries}) < len(entries):
        raise error(42208, "Batch error: two entries have the same id")
    waiting: list[tuple[str, _Sent | Json]] = []
    for entry in entries:
        try:
            waiting.append((str(entry["id"]), await _send(request, topic, entry)))
        except ApiError as failure:
            waiting.append((str(entry["id"]), {"error_code": failure.code, "message": failure.message}))
    successes: list[Json] = []
    failures: list[Json] = []
    for number, sent in waiting:
        result = sent if isinstance(sent, dict) else await _result(sent, links.cluster_id, topic)
        (successes if result["error_code"] == 200 else failures).append({"id": number, **result})
    return Answer({"successes": successes, "failures": failures}, 207)


_RECORDS = "/clusters/{cluster:name}/topics/{topic:name}/records"
ROUTES = [
    Route(_RECORDS, produce, methods=["POST"]),
    Route(f"{_RECORDS}:batch", produce_batch, methods=["POST"]),
]
