"""An admin client for the broker, and its errors in words for the user."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from millrace.pipelines.errors import BrokerUnavailable, PipelineError

DEFAULT_PORT = 9092
CONNECT_SECONDS = 2.0
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


def require_reachable(bootstrap: str) -> None:
    """Raise unless one of the bootstrap addresses accepts connections.

    A client of librdkafka retries a refused connection until its timeout; this fails at once.
    """
    problems = []
    for address in bootstrap.split(","):
        host, port = _host_and_port(address.strip())
        try:
            socket.create_connection((host, port), CONNECT_SECONDS).close()
            return
        except OSError as error:
            problems.append(f"{address.strip()}: {error.strerror or error}")
    raise BrokerUnavailable(
        f"no broker answers ({'; '.join(problems)});"
        " start one with `millrace up`, or name another with --bootstrap-server"
    )


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


def _host_and_port(address: str) -> tuple[str, int]:
    """Split `host:port`, `host` or `[ipv6]:port`."""
    host, _, port = address.rpartition(":")
    if not host or address.endswith("]"):
        host, port = address, str(DEFAULT_PORT)
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise PipelineError(f"{address!r} is not the address of a broker; write host:port")
    return host.strip("[]"), int(port)


def _silence() -> logging.Logger:
    logger = logging.getLogger("millrace.pipelines.kafka")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    return logger


_SILENCE = _silence()
