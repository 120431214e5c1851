"""Time until a restarted broker has loaded a log of offset commits."""

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import uvloop

from benchmarks.brokers import Millrace
from benchmarks.comparison import run_load
from benchmarks.loads.groups.coordinators import RETRY_SECONDS, connect, offsets_of
from benchmarks.loads.groups.offsets import group_name
from benchmarks.machine.usage import cpu_seconds
from benchmarks.target import Target
from millrace.testing.apache_kafka import ApacheKafka

TOPIC = "loaded"
GROUPS, PARTITIONS, CONNECTIONS = 1000, 100, 32


class RestartableBroker(Protocol):
    """A broker that can be restarted."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    @property
    def bootstrap(self) -> str: ...

    @property
    def pid(self) -> int: ...


STARTS: dict[str, Callable[[Path], RestartableBroker]] = {
    "millrace": lambda directory: Millrace({}, data_dir=directory),
    "Apache Kafka": lambda directory: ApacheKafka(directory=directory),
}


def run(commits: int, brokers: Sequence[str], announce: Callable[[str], None]) -> dict[str, dict[str, float]]:
    """Figures of a restart after `commits` commits, by broker."""
    figures = {}
    for name in brokers:
        with tempfile.TemporaryDirectory(prefix="benchmark-") as directory:
            broker = STARTS[name](Path(directory))
            announce(f"{name}: {commits} commits")
            broker.start()
            try:
                _fill(broker, commits)
                broker.stop()
                announce(f"{name}: starting again")
                figures[name] = _start_again(broker)
            finally:
                broker.stop()
    return figures


def _fill(broker: RestartableBroker, commits: int) -> None:
    target = Target(broker.bootstrap, broker.pid)
    target.create_topic(TOPIC, PARTITIONS)
    sizes = {"commits": commits, "groups": GROUPS, "partitions": PARTITIONS, "connections": CONNECTIONS}
    run_load("commit-offsets", target, {"topic": TOPIC, **sizes})


def _start_again(broker: RestartableBroker) -> dict[str, float]:
    started = time.monotonic()
    broker.start()
    ready = time.monotonic()
    offsets, slowest = uvloop.run(_ask_for_all(broker.bootstrap))
    answered = time.monotonic()
    return {
        "offsets": offsets,
        "seconds until ready": ready - started,
        "seconds until every group's offsets are answered": answered - started,
        "broker CPU s": cpu_seconds(broker.pid),
        "slowest answer meanwhile, ms": slowest * 1000,
    }


async def _ask_for_all(bootstrap: str) -> tuple[int, float]:
    """Fetch each group's offsets until they are returned; their number, and the slowest response."""
    connection = await connect(bootstrap)
    offsets, slowest = 0, 0.0
    for number in range(GROUPS):
        response = None
        while response is None:
            asked = time.perf_counter()
            response = await offsets_of(connection, group_name(number))
            slowest = max(slowest, time.perf_counter() - asked)
            if response is None:
                await asyncio.sleep(RETRY_SECONDS)
        offsets += sum(len(topic.partitions) for topic in response.topics)
    connection.close()
    return offsets, slowest
