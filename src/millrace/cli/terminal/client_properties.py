"""Client properties under their Java names, translated for librdkafka."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click
from confluent_kafka import KafkaException

from millrace.cli.terminal.errors import CommandError
from millrace.client.security import user_and_password

T = TypeVar("T")

RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.truststore.location": "ssl.ca.location",
}

# Java settings that would change nothing in librdkafka.
WITHOUT_COUNTERPART = frozenset(
    {
        "auto.include.jmx.reporter",
        "default.api.timeout.ms",
        "exclude.internal.topics",
        "interceptor.classes",
        "key.deserializer",
        "key.serializer",
        "max.block.ms",
        "max.poll.records",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.class",
        "partitioner.ignore.keys",
        "ssl.keystore.type",
        "ssl.truststore.password",
        "ssl.truststore.type",
        "value.deserializer",
        "value.serializer",
    }
)

_UNKNOWN_NAME = 'No such configuration property: "'

# Critical messages only: librdkafka would report each failed connection attempt in its own format.
_QUIET = {"log_level": 2}


def create(
    client: Callable[[dict[str, Any]], T],
    properties: Mapping[str, str],
    more_settings: Mapping[str, object] | None = None,
) -> T:
    """Create a librdkafka client with these properties; warn of names that it does not know.

    `more_settings` are settings that a properties file cannot hold, such as callbacks.
    """
    settings: dict[str, Any] = {**_QUIET, **translate(properties), **(more_settings or {})}
    while True:
        try:
            return client(settings)
        except KafkaException as error:
            reason = error.args[0].str()
            if not reason.startswith(_UNKNOWN_NAME):
                raise CommandError(f"{reason}; check the client's properties") from None
            name = reason.removeprefix(_UNKNOWN_NAME).rstrip('"')
            click.echo(f"warning: ignoring the unknown client property {name}", err=True)
            del settings[name]


def translate(properties: Mapping[str, str]) -> dict[str, str]:
    """Translate Java's names into librdkafka's, and drop those without a counterpart."""
    translated = {}
    for name, value in properties.items():
        if name == "buffer.memory":
            translated["queue.buffering.max.kbytes"] = str(max(1, int(value) // 1024))
        elif name == "sasl.jaas.config":
            translated["sasl.username"], translated["sasl.password"] = user_and_password(properties)
        elif name == "ssl.endpoint.identification.algorithm":
            translated[name] = value.lower() or "none"
        elif name == "ssl.keystore.location" and properties.get("ssl.keystore.type", "").upper() == "PEM":
            translated["ssl.certificate.location"] = translated["ssl.key.location"] = value
        elif name not in WITHOUT_COUNTERPART:
            translated[RENAMED.get(name, name)] = value
    return translated
