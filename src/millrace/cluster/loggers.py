"""The levels of the broker's loggers, which tools read and set as configs of type BROKER_LOGGER."""

import logging
from collections.abc import Sequence

from millrace.cluster.configs import Change, ConfigEntry, ConfigSource, Operation
from millrace.errors import Error, KafkaError

ROOT = "root"
_PACKAGE = "millrace"
_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_NAMES = {level: name for name, level in _LEVELS.items()}


def describe_loggers() -> list[ConfigEntry]:
    """The root logger and the broker's own, with the levels in effect."""
    names = [ROOT, *sorted(name for name in logging.root.manager.loggerDict if _is_own(name))]
    return [
        ConfigEntry(
            name=name, value=_level_name(_logger(name)), source=ConfigSource.DYNAMIC_BROKER_LOGGER, kind=None
        )
        for name in names
    ]


def alter_loggers(changes: Sequence[Change], *, validate_only: bool) -> None:
    """Set levels, or delete them so that the logger follows its parent again."""
    for change in changes:
        if change.name != ROOT and not _is_own(change.name):
            raise KafkaError(Error.INVALID_CONFIG, f"Logger {change.name} does not exist!")
        if change.operation not in (Operation.SET, Operation.DELETE):
            raise KafkaError(Error.INVALID_REQUEST, "A logger's level can be set or deleted, nothing else")
        if change.operation == Operation.DELETE and change.name == ROOT:
            raise KafkaError(
                Error.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed"
            )
        if change.operation == Operation.SET and change.value not in _LEVELS:
            raise KafkaError(
                Error.INVALID_CONFIG,
                f"Cannot set the log level of {change.name} to {change.value}: "
                f"it must be one of {', '.join(_LEVELS)}",
            )
    if not validate_only:
        for change in changes:
            _logger(change.name).setLevel(_LEVELS.get(change.value or "", logging.NOTSET))


def _is_own(name: str) -> bool:
    return name == _PACKAGE or name.startswith(_PACKAGE + ".")


def _logger(name: str) -> logging.Logger:
    return logging.getLogger() if name == ROOT else logging.getLogger(name)


def _level_name(logger: logging.Logger) -> str:
    return _NAMES.get(logger.getEffectiveLevel(), "INFO")
