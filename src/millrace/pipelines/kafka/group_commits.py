"""Commits the progress of queries to consumer groups, in the background."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from confluent_kafka import OFFSET_BEGINNING, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from millrace.pipelines.kafka.client import REQUEST_SECONDS, admin
from millrace.pipelines.kafka.offsets import Offsets

RETRY_SECONDS = 2.0
# A coordinator that is loading refuses commits for a moment; the last commit is worth a few retries.
LAST_RETRY_SECONDS = 0.1
LAST_COMMIT_SECONDS = 5.0


class GroupCommits:
    """Commits offsets to groups from its own thread, without joining them. Failed commits are retried."""

    def __init__(self, bootstrap: str, settings: Mapping[str, str] | None = None) -> None:
        self._pending: dict[str, Offsets] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._closed_at = 0.0
        # The thread owns the client, which is freed with it: Spark may keep this object for much longer.
        client = admin(bootstrap, settings)
        self._thread = threading.Thread(
            target=self._work, args=(client,), name="millrace-commits", daemon=True
        )
        self._thread.start()

    def put(self, group: str, offsets: Offsets) -> None:
        """Queue offsets to commit; they replace queued offsets of the same group."""
        with self._changed:
            self._pending[group] = offsets
            self._changed.notify_all()

    def close(self) -> None:
        """Commit what is queued, if the broker is available, and end."""
        with self._changed:
            self._closed = True
            self._closed_at = time.monotonic()
            self._changed.notify_all()
        self._thread.join(2 * REQUEST_SECONDS)

    def _work(self, client: AdminClient) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._closed)
                if not self._pending:
                    return
                taken, self._pending = self._pending, {}
            failed = {
                group: offsets for group, offsets in taken.items() if not _commit(client, group, offsets)
            }
            with self._changed:
                self._pending = failed | self._pending
                if not failed:
                    continue
                if not self._closed:
                    self._changed.wait_for(lambda: self._closed, RETRY_SECONDS)
                elif time.monotonic() < self._closed_at + LAST_COMMIT_SECONDS:
                    self._changed.wait(LAST_RETRY_SECONDS)
                else:
                    return


def _commit(client: AdminClient, group: str, offsets: Offsets) -> bool:
    partitions = [
        TopicPartition(topic, partition, offset)
        for topic, by_partition in offsets.items()
        for partition, offset in by_partition.items()
        if offset >= 0 or offset == OFFSET_BEGINNING
    ]
    if not partitions:
        return True
    try:
        [response] = client.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, partitions)], request_timeout=REQUEST_SECONDS
        ).values()
        return all(partition.error is None for partition in response.result().topic_partitions)
    except KafkaException:
        return False
