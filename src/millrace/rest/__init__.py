"""A REST proxy with Confluent's API, versions 2 and 3, over the Kafka protocol only.

producing.py  one producer that all requests share;  formats.py  bytes of records and their JSON forms
consumers.py  consumer instances and their life;     json_stream.py  JSON values in a stream of bytes
v2/ v3/       the two APIs
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from millrace.services.table import Settings

REGISTRY = "http://127.0.0.1:8081"


def app(settings: Settings) -> Starlette:
    """The proxy as a service of `millrace up`."""
    from millrace.rest.app import Options, rest_app

    return rest_app(Options(settings.bootstrap, REGISTRY, properties=dict(settings.client)))
