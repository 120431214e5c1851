"""Errors as the user sees them: one line that says what is wrong and what to do."""

import click

from millrace.errors import Error, KafkaError

REMEDIES = {
    Error.CLUSTER_AUTHORIZATION_FAILED: "the broker's administrator must allow it",
    Error.INVALID_REPLICATION_FACTOR: "a single broker holds one copy; use --replication-factor 1",
    Error.TOPIC_ALREADY_EXISTS: "--if-not-exists accepts that",
    Error.UNKNOWN_TOPIC_OR_PARTITION: "`millrace topics --list` shows the topics",
    Error.UNSUPPORTED_VERSION: "the broker is too old for this; upgrade it",
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
    from millrace.broker import StartupError
    from millrace.client import InvalidAddress
    from millrace.config import ConfigError
    from millrace.pipelines.errors import PipelineError

    if isinstance(error, (StartupError, ConfigError, InvalidAddress, PipelineError)):
        return str(error)
    return f"{type(error).__name__}: {error}; MILLRACE_DEBUG=1 shows where it came from"


def explain_kafka_error(error: KafkaError) -> str:
    """The broker's message, with a remedy if one is known."""
    message = error.message.rstrip(". ")
    remedy = REMEDIES.get(error.error)
    return f"{message}; {remedy}" if remedy else message
