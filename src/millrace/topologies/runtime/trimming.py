"""Trimming of edge topics: what is processed and committed is deleted, and nothing else is."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from millrace.topologies.runtime.inputs import InputPartition, Place

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 1.0


class Trimmer:
    """Deletes the records of internal topics below the offset that their only reader has committed.

    Time and size say nothing about what a worker still has to read, so these topics have no other retention.
    Owned by the worker's loop; the requests run beside it.
    """

    def __init__(self, client: Mapping[str, Any]) -> None:
        self._admin = AdminClient(dict(client))
        self._trimmed: dict[Place, int] = {}
        self._requests: dict[TopicPartition, Future[Any]] = {}
        self._next = 0.0

    def trim(self, partitions: Iterable[InputPartition]) -> None:
        """Delete what is committed since the last time, if that is a while ago and its request has ended."""
        now = time.monotonic()
        if now < self._next or not all(request.done() for request in self._requests.values()):
            return
        self._note_results()
        wanted = [
            TopicPartition(*partition.place, partition.committed)
            for partition in partitions
            if partition.committed > self._trimmed.get(partition.place, 0)
        ]
        self._requests = dict(self._admin.delete_records(wanted)) if wanted else {}
        if wanted:
            self._next = now + INTERVAL_SECONDS

    def _note_results(self) -> None:
        for partition, request in self._requests.items():
            error = request.exception()
            if error is None:
                self._trimmed[partition.topic, partition.partition] = partition.offset
            else:
                logger.info("%s-%d is not trimmed: %s", partition.topic, partition.partition, error)
