"""Stops a run when a newer version of its outputs becomes the current one."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, Self

from confluent_kafka import KafkaException

from millrace.pipelines.errors import PipelineError
from millrace.pipelines.kafka import client, topic_admin
from millrace.pipelines.kafka.records import committed_consumer
from millrace.pipelines.replay.output_pointer import TOPIC, Output, Version

if TYPE_CHECKING:
    from types import TracebackType

POLL_SECONDS = 0.5
RETRY_SECONDS = 1.0
SESSION_MS = 10_000


class Stoppable(Protocol):
    """A run that can be told to end after its current batch."""

    def stop(self) -> None: ...


class Takeover(AbstractContextManager["Takeover"]):
    """Watches the pointers of a version's outputs during its block, and stops the run when one moves on.

    While it watches, it is a member of a consumer group, so that others see that this version is running.
    """

    def __init__(self, run: Stoppable, version: Version, bootstrap: str) -> None:
        self._run = run
        self._version = version
        self._bootstrap = bootstrap
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="millrace-takeover", daemon=True)
        self.superseded_by: Output | None = None
        """The output that moved on; None as long as this version is the current one."""

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
                # The broker is unavailable, so no replay can move the pointer either.
                self._ended.wait(RETRY_SECONDS)

    def _follow(self) -> None:
        topic_admin.ensure(TOPIC, self._bootstrap, config=topic_admin.COMPACTED)
        group = presence_group(self._version)
        consumer = committed_consumer(self._bootstrap, group, **{"session.timeout.ms": SESSION_MS})
        try:
            consumer.subscribe([TOPIC])
            while not self._ended.is_set():
                message = consumer.poll(POLL_SECONDS)
                if message is None or message.error():
                    continue
                name, value = (message.key() or b"").decode(), message.value()
                if value and name in self._version.topics and self.superseded_by is None:
                    self._check(Output.read(name, value))
        finally:
            consumer.close()

    def _check(self, output: Output) -> None:
        if output.version > self._version.number:
            self.superseded_by = output
            # In another thread: the stop may take as long as a batch, and this thread stays in the group.
            threading.Thread(target=self._run.stop, name="millrace-superseded", daemon=True).start()


def presence_group(version: Version) -> str:
    """The group that a running version is a member of."""
    return f"{version.name}.runs"


def is_running(version: Version, bootstrap: str) -> bool:
    """Whether a process runs this version."""
    group = presence_group(version)
    # Kept in a variable: the response never arrives if the client is garbage collected first.
    connection = client.admin(bootstrap)
    described = connection.describe_consumer_groups([group], request_timeout=client.REQUEST_SECONDS)
    try:
        return bool(described[group].result().members)
    except KafkaException:
        # There is no such group.
        return False
