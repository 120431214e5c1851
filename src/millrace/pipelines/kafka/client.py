"""An admin client for the broker, and its errors in words for the user."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from millrace.pipelines.errors import BrokerUnavailable, PipelineError

REQUEST_SECONDS = 10.0
UNAVAILABLE = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._RESOLVE,
    KafkaError._DESTROY,
}


def admin(bootstrap: str, settings: Mapping[str, str] | None = None) -> AdminClient:
    """An admin client that logs nothing: its errors reach the caller as exceptions."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **(settings or {})}, logger=_SILENCE)


@contextmanager
def explained(bootstrap: str) -> Iterator[None]:
    """Turn errors of the client into errors for the user."""
    try:
        yield
    except KafkaException as error:
        cause: KafkaError = error.args[0]
        if cause.code() in UNAVAILABLE or cause.retriable():
            raise BrokerUnavailable(
                f"the broker at {bootstrap} does not answer ({cause.str()});"
                " start it, or name another one with --bootstrap-server"
            ) from error
        raise PipelineError(
            f"the broker at {bootstrap} refuses the request ({cause.str()});"
            " check the permissions of this user"
        ) from error


def _silence() -> logging.Logger:
    logger = logging.getLogger("millrace.pipelines.kafka")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    return logger


_SILENCE = _silence()
