"""The REST proxy as a web application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from millrace.client import Client, security_of
from millrace.errors import KafkaError
from millrace.rest.consumers import IDLE_SECONDS, Instances
from millrace.rest.errors import from_kafka
from millrace.rest.formats import SchemaFormats
from millrace.rest.producing import SharedProducer
from millrace.rest.v2 import consumers, metadata, produce
from millrace.rest.v2.answers import Answer
from millrace.rest.v3 import acls, clusters, configs, groups, records, topics
from millrace.rest.web import KnownTopics, Proxy
from millrace.services.access import LocalAccess
from millrace.services.encoded_path import EncodedPath
from millrace.services.errors import Json, error_body, error_handlers

_REQUEST_SECONDS = 30.0
_V2 = [*metadata.ROUTES, *produce.ROUTES, *consumers.ROUTES]
_V3 = [*records.ROUTES, *configs.ROUTES, *topics.ROUTES, *groups.ROUTES, *acls.ROUTES, *clusters.ROUTES]


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a proxy."""

    bootstrap: str
    registry: str | None = None
    """The address of the schema registry; without one, records with schemas are refused."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Further properties of Kafka clients under librdkafka's names, such as those of security."""
    idle_seconds: float = IDLE_SECONDS
    """Consumer instances that are not used for so long are closed."""


async def _root(request: Request) -> Response:
    return Answer({})


def rest_app(options: Options) -> Starlette:
    """A proxy that opens when the application starts."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        client = Client(
            options.bootstrap,
            client_id="millrace-rest",
            timeout_seconds=_REQUEST_SECONDS,
            security=security_of(options.properties),
        )
        producer = SharedProducer(options.bootstrap, options.properties)
        instances = Instances(options.bootstrap, options.properties, options.idle_seconds)
        app.state.proxy = Proxy(
            client, KnownTopics(client), producer, instances, SchemaFormats(options.registry)
        )
        app.state.admin_client = cache(lambda: _admin_client(options))
        try:
            yield
        finally:
            await instances.close()
            await producer.close()
            client.close()

    return Starlette(
        routes=[
            Route("/", _root, methods=["GET", "POST", "HEAD"]),
            Mount("/v3", routes=_V3),
            Mount("/kafka/v3", routes=_V3),
            *_V2,
        ],
        middleware=[Middleware(LocalAccess), Middleware(EncodedPath)],
        exception_handlers={**error_handlers(error_body), KafkaError: _kafka_error},
        lifespan=lifespan,
    )


def _admin_client(options: Options) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({**options.properties, "bootstrap.servers": options.bootstrap, "log_level": 2})


def _kafka_error(request: Request, failure: Exception) -> Response:
    assert isinstance(failure, KafkaError)
    error = from_kafka(failure)
    return Json(error_body(error), error.status)
