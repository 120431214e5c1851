"""Reads the metrics topic, and goes on as workers write to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from millrace.topologies.runtime import topics
from millrace.topologies.supervisor.board import QUIET, LogUnavailable
from millrace.topologies.supervisor.figures import AllFigures

TIMEOUT_SECONDS = 30.0
READ_RECORDS = 5000


class FiguresReader:
    """The figures of all topologies as they are in the log. One thread may use it."""

    def __init__(self, bootstrap: str, client: Mapping[str, str] | None = None) -> None:
        self.figures = AllFigures()
        self._bootstrap = bootstrap
        self._config: dict[str, Any] = {**QUIET, **(client or {}), "bootstrap.servers": bootstrap}
        self._behind: set[int] = set()
        self._consumer = Consumer(
            {
                **self._config,
                "group.id": "topology-figures",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "queued.max.messages.kbytes": 4096,
            }
        )
        self._is_open = False

    def open(self) -> bool:
        """Begin to read; returns False if no topology has ever run."""
        if not self._is_open:
            known = AdminClient(self._config).list_topics(timeout=TIMEOUT_SECONDS).topics
            if topics.METRICS in known and known[topics.METRICS].error is None:
                self._behind = set(known[topics.METRICS].partitions)
                self._consumer.assign(
                    [TopicPartition(topics.METRICS, number, OFFSET_BEGINNING) for number in self._behind]
                )
                self._is_open = True
        return self._is_open

    def catch_up(self) -> AllFigures:
        """Read everything that is there."""
        if self.open():
            while self._behind:
                if not self.refresh(TIMEOUT_SECONDS):
                    raise LogUnavailable(f"the log at {self._bootstrap} does not answer; is it running?")
        return self.figures

    def refresh(self, seconds: float = 0.0) -> bool:
        """Take up what is new, waiting for the first record; returns whether there was something."""
        first = self._consumer.poll(seconds) if self._is_open else None
        if first is None:
            return False
        for message in (first, *self._consumer.consume(READ_RECORDS, 0)):
            error = message.error()
            if error is None:
                self.figures.add(message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                self._behind.discard(message.partition())
            elif error.fatal():
                raise KafkaException(error)
        return True

    def close(self) -> None:
        self._consumer.close()
