"""Errors as the user sees them: one line that says what is wrong and what to do."""

import sys
from collections.abc import Iterator

import click

from millrace.errors import Error, KafkaError

REMEDIES = {
    Error.CLUSTER_AUTHORIZATION_FAILED: "the broker's administrator must allow it",
    Error.INVALID_REPLICATION_FACTOR: "a single broker holds one copy; use --replication-factor 1",
    Error.TOPIC_ALREADY_EXISTS: "--if-not-exists accepts that",
    Error.UNKNOWN_TOPIC_OR_PARTITION: "`millrace topics --list` shows the topics",
    Error.UNSUPPORTED_VERSION: "the broker is too old for this; upgrade it",
}

# Looked up by name: importing the broker takes longer than most commands that fail.
ERRORS_FOR_USERS = {
    "millrace.topologies.model.errors": "TopologyError",
    "millrace.broker": "StartupError",
    "millrace.client": "InvalidAddress",
    "millrace.config": "ConfigError",
    "millrace.mqtt.log.topics": "LogUnavailable",
    "millrace.mqtt.passwords": "PasswordFileError",
    "millrace.mqtt.rules": "RuleError",
    "millrace.pipelines.errors": "PipelineError",
}


class CommandError(click.ClickException):
    """A command cannot run as given; the text says why, and what to do."""


def explain(error: Exception) -> str:
    """Describe an error in one line."""
    match error:
        case click.UsageError(ctx=click.Context() as ctx):
            return f"{error.format_message()}\n`{ctx.command_path} --help` shows the options"
        case click.ClickException():
            return error.format_message()
        case KafkaError():
            return explain_kafka_error(error)
        case OSError(filename=str(path)):
            return f"{path}: {error.strerror}"
        case OSError():
            return str(error)
    if isinstance(error, tuple(_loaded_error_types())):
        return str(error)
    return f"{type(error).__name__}: {error}; MILLRACE_DEBUG=1 shows where it came from"


def _loaded_error_types() -> Iterator[type[Exception]]:
    """The errors whose text is meant for users. Modules that are not loaded have raised none of them."""
    for module, name in ERRORS_FOR_USERS.items():
        if module in sys.modules:
            yield getattr(sys.modules[module], name)


def explain_kafka_error(error: KafkaError) -> str:
    """The broker's message, with a remedy if one is known."""
    message = error.message.rstrip(". ")
    remedy = REMEDIES.get(error.error)
    return f"{message}; {remedy}" if remedy else message
