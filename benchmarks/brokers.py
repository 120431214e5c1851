"""The brokers under test, each in its own process, started like users start it."""

import compileall
import io
import os
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from millrace.testing import BrokerProcess
from millrace.testing.apache_kafka import ApacheKafka, answers_api_versions


class RunningBroker(Protocol):
    """The parts of a broker that benchmarks use."""

    ready_seconds: float

    @property
    def bootstrap(self) -> str: ...

    @property
    def pid(self) -> int: ...


class Millrace(BrokerProcess):
    """A millrace broker with its own port and directory; its start is timed like Apache Kafka's."""

    ready_seconds = 0.0

    def __init__(
        self, properties: Mapping[str, str], source: Path | None = None, *, data_dir: Path | None = None
    ) -> None:
        super().__init__(properties, data_dir=data_dir)
        self._source = source

    def start(self) -> None:
        started = time.monotonic()
        with _importing_from(self._source):
            super().start()
        while not answers_api_versions(self.port):
            time.sleep(0.005)
        self.ready_seconds = time.monotonic() - started


@contextmanager
def _importing_from(source: Path | None) -> Iterator[None]:
    """Let processes that start within the block import from this source tree."""
    before = os.environ.get("PYTHONPATH")
    if source is not None:
        os.environ["PYTHONPATH"] = str(source)
    try:
        yield
    finally:
        if source is not None:
            del os.environ["PYTHONPATH"]
            if before is not None:
                os.environ["PYTHONPATH"] = before


def apache_kafka(properties: Mapping[str, str]) -> ApacheKafka:
    # A paused broker would miss its own heartbeats, and would remove the files of deleted topics a minute
    # later, during another measurement.
    own = {"broker.session.timeout.ms": "3600000", "log.segment.delete.delay.ms": "500"}
    return ApacheKafka({**own, **properties})


StartBroker = Callable[[Mapping[str, str]], AbstractContextManager[RunningBroker]]
"""Starts a broker with these properties."""

MILLRACE, APACHE_KAFKA = "millrace", "Apache Kafka"

BROKERS: dict[str, StartBroker] = {MILLRACE: Millrace, APACHE_KAFKA: apache_kafka}


@contextmanager
def earlier(revision: str) -> Iterator[StartBroker]:
    """Start millrace as of a revision of this repository."""
    command = ["git", "archive", "--format=zip", revision, "src"]
    packed = subprocess.run(command, check=False, cwd=Path(__file__).parent.parent, capture_output=True)
    if packed.returncode:
        raise SystemExit(packed.stderr.decode().strip())
    with tempfile.TemporaryDirectory() as directory:
        with zipfile.ZipFile(io.BytesIO(packed.stdout)) as archive:
            archive.extractall(directory)
        source = Path(directory, "src")
        compileall.compile_dir(source, quiet=1)
        yield partial(Millrace, source=source)
