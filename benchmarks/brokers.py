"""The brokers under test, each in its own process and started the way its users start it."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from millrace.testing import BrokerProcess
from millrace.testing.apache_kafka import ApacheKafka, answers_api_versions


class RunningBroker(Protocol):
    """What the benchmarks need to know of a broker."""

    ready_seconds: float

    @property
    def bootstrap(self) -> str: ...

    @property
    def pid(self) -> int: ...


class Millrace(BrokerProcess):
    """A millrace broker with its own port and directory, its start clocked as Apache Kafka's is."""

    ready_seconds = 0.0

    def start(self) -> None:
        started = time.monotonic()
        super().start()
        while not answers_api_versions(self.port):
            time.sleep(0.005)
        self.ready_seconds = time.monotonic() - started


def apache_kafka(properties: Mapping[str, str]) -> ApacheKafka:
    # Paused while the other one is measured, it would otherwise find its own heartbeats missing.
    return ApacheKafka({"broker.session.timeout.ms": "3600000", **properties})


StartBroker = Callable[[Mapping[str, str]], AbstractContextManager[RunningBroker]]
"""Takes what is not left at its default."""

BROKERS: dict[str, StartBroker] = {
    "millrace": Millrace,
    "Apache Kafka": apache_kafka,
}
