"""Lets a run end when a newer version of its outputs has become the current one."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, Self

from confluent_kafka import KafkaException

from millrace.pipelines import offsets, topics
from millrace.pipelines.errors import PipelineError
from millrace.pipelines.outputs import TOPIC, Output, Version

if TYPE_CHECKING:
    from types import TracebackType

POLL_SECONDS = 0.5
AWAY_SECONDS = 1.0
SESSION_MS = 10_000


class Stoppable(Protocol):
    """What can be told to end after its current batch."""

    def stop(self) -> None: ...


class Takeover(AbstractContextManager["Takeover"]):
    """Watches the pointers of a version's outputs while its block lasts, and stops the run when one moves on.

    It is the member of a consumer group while it watches, so that others see that this version is running.
    """

    def __init__(self, run: Stoppable, version: Version, bootstrap: str) -> None:
        self._run = run
        self._version = version
        self._bootstrap = bootstrap
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="millrace-takeover", daemon=True)
        self.by: Output | None = None
        """The output that has moved on; none as long as this version is the current one."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.is_set():
            try:
                self._follow()
            except (PipelineError, KafkaException):
                # The broker is away; so is whoever would move the pointer.
                self._ended.wait(AWAY_SECONDS)

    def _follow(self) -> None:
        topics.ensure(TOPIC, self._bootstrap, config=topics.COMPACTED)
        group = presence_group(self._version)
        consumer = topics.reader(self._bootstrap, group, **{"session.timeout.ms": SESSION_MS})
        try:
            consumer.subscribe([TOPIC])
            while not self._ended.is_set():
                message = consumer.poll(POLL_SECONDS)
                if message is None or message.error():
                    continue
                name, value = (message.key() or b"").decode(), message.value()
                if value and name in self._version.topics and self.by is None:
                    self._look_at(Output.read(name, value))
        finally:
            consumer.close()

    def _look_at(self, output: Output) -> None:
        if output.version > self._version.number:
            self.by = output
            # Its own thread: stopping may take as long as a batch, and others want to see us until then.
            threading.Thread(target=self._run.stop, name="millrace-superseded", daemon=True).start()


def presence_group(version: Version) -> str:
    """The group whose member a running version is."""
    return f"{version.name}.runs"


def is_running(version: Version, bootstrap: str) -> bool:
    """Whether some process runs this version."""
    group = presence_group(version)
    # Held until the answer is here: a client that is let go of never gives one.
    client = offsets.admin(bootstrap)
    asked = client.describe_consumer_groups([group], request_timeout=offsets.REQUEST_SECONDS)
    try:
        return bool(asked[group].result().members)
    except KafkaException:
        # There is no such group.
        return False
