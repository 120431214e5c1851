"""Errors as the user sees them: one line that says what is wrong and what to do."""

import click

from millrace.errors import Error, KafkaError

REMEDIES = {
    Error.CLUSTER_AUTHORIZATION_FAILED: "the broker's administrator must allow it",
    Error.INVALID_REPLICATION_FACTOR: "a single broker holds one copy; use --replication-factor 1",
    Error.TOPIC_ALREADY_EXISTS: "--if-not-exists accepts that",
    Error.UNKNOWN_TOPIC_OR_PARTITION: "`millrace topics --list` shows what there is",
    Error.UNSUPPORTED_VERSION: "the broker is too old for this; upgrade it",
}


class CommandError(click.ClickException):
    """A command cannot do what it was asked; the text says why and what to do."""


def explain(error: Exception) -> str:
    """The one line for an error."""
    match error:
        case click.UsageError(ctx=click.Context() as ctx):
            return f"{error.format_message()}\n`{ctx.command_path} --help` shows what can be said"
        case click.ClickException():
            return error.format_message()
        case KafkaError():
            return explain_kafka_error(error)
        case OSError(filename=str(path)):
            return f"{path}: {error.strerror}"
        case OSError():
            return str(error)
    from millrace.broker import StartupError
    from millrace.config import ConfigError
    from millrace.pipelines.errors import PipelineError

    if isinstance(error, (StartupError, ConfigError, PipelineError)):
        return str(error)
    return f"{type(error).__name__}: {error}; MILLRACE_DEBUG=1 shows where it came from"


def explain_kafka_error(error: KafkaError) -> str:
    """What the broker said, with a remedy where there is one."""
    message = error.message.rstrip(". ")
    remedy = REMEDIES.get(error.error)
    return f"{message}; {remedy}" if remedy else message


def check(code: int, message: str | None = None) -> None:
    """Raise the error that a response carries, if it carries one."""
    if code != Error.NONE:
        raise KafkaError(known_error(code), message)


def known_error(code: int) -> Error:
    """The error of a code; a code from the future is an unknown server error."""
    return _ERRORS.get(code, Error.UNKNOWN_SERVER_ERROR)


_ERRORS = {error.value: error for error in Error}
