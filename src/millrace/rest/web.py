"""The parts that both versions of the API share: the proxy's objects, bodies, paths."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request

from millrace.admin.topics import TopicDescription, existing_topics
from millrace.client import Client
from millrace.rest.consumers import Instances
from millrace.rest.formats import SchemaFormats
from millrace.rest.producing import SharedProducer
from millrace.services.errors import ApiError

MAX_BODY_BYTES = 64_000_000
_REMEMBERED_SECONDS = 5.0
_REMEMBERED_TOPICS = 10_000


class KnownTopics:
    """Topics that exist, remembered for a moment: small produce calls need not ask the cluster each time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, tuple[float, TopicDescription]] = {}

    async def get(self, name: str) -> TopicDescription | None:
        """A topic, as it was a few seconds ago at most; None if it does not exist."""
        now = time.monotonic()
        found = self._known.get(name)
        if found is None or now - found[0] > _REMEMBERED_SECONDS:
            existing = await existing_topics(self._client, [name])
            self._known.pop(name, None)
            if name not in existing:
                return None
            if len(self._known) >= _REMEMBERED_TOPICS:
                self._known.clear()
            found = self._known[name] = (now, existing[name])
        return found[1]


@dataclass(slots=True)
class Proxy:
    """The objects of a running proxy."""

    client: Client
    topics: KnownTopics
    producer: SharedProducer
    instances: Instances
    schemas: SchemaFormats


def proxy(request: Request) -> Proxy:
    found: Proxy = request.app.state.proxy
    return found


async def body_of(request: Request, *, optional: bool = False) -> dict[str, Any]:
    """The JSON object that a request carries. Raises ApiError."""
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > MAX_BODY_BYTES:
            raise ApiError(413, f"the body has more than {MAX_BODY_BYTES} bytes")
    if not data and optional:
        return {}
    try:
        read = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as failure:
        raise ApiError(400, f"the body is not JSON: {failure}") from None
    if not isinstance(read, dict):
        raise ApiError(400, "the body is not a JSON object")
    return read


def partition_of(text: str) -> int:
    """The number of a partition in a path; -1 if it is none, which no partition has."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
