"""A schema registry with Confluent's REST API and store, over the Kafka protocol only.

schemas/      parsing, canonical forms, compatibility; no I/O
state.py      the records of the `_schemas` topic, replayed; reads are served from here
decisions.py  what a write appends; settings.py and parsing.py are its parts
topic.py      reading and writing the topic; leadership.py  which registry writes
routes/       the REST API
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from millrace.services.table import Settings


def app(settings: Settings) -> Starlette:
    """The registry as a service of `millrace up`."""
    from millrace.registry.app import registry_app
    from millrace.registry.leadership import Identity
    from millrace.registry.registry import Options

    identity = Identity(settings.host, settings.port)
    return registry_app(Options(settings.bootstrap, identity, properties=dict(settings.client)))
