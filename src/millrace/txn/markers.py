"""Carries decided transactions to their end: a marker in every partition, then the record of completion."""

from __future__ import annotations

import logging
from collections.abc import Callable

from millrace.errors import Error, KafkaError
from millrace.replication.hosted_partitions import HostedPartitions
from millrace.timers import Timers
from millrace.txn.transaction import TopicPartition, Transaction

logger = logging.getLogger(__name__)

RETRY_MS = 1000

# The topic is deleted, or somebody has ended the transaction there with WriteTxnMarkers and a newer epoch.
_NEEDS_NO_MARKER = (
    Error.UNKNOWN_TOPIC_OR_PARTITION,
    Error.INVALID_PRODUCER_EPOCH,
    Error.TRANSACTION_COORDINATOR_FENCED,
)


class Markers:
    """Owned by the broker loop; not thread-safe.

    What cannot be written now, because a disk is full, is tried again until it can. After a restart every
    marker of a decided transaction is written once more: a second marker changes nothing.
    """

    def __init__(
        self, partitions: HostedPartitions, timers: Timers, record_completion: Callable[[Transaction], None]
    ) -> None:
        self._partitions = partitions
        self._timers = timers
        self._record_completion = record_completion
        # By transactional id: partitions without their marker, kept only while something has failed.
        self._unmarked: dict[str, set[TopicPartition]] = {}

    def complete(self, transaction: Transaction, coordinator_epoch: int) -> None:
        """Write what the transaction lacks to be complete, now or, failing that, later."""
        transactional_id = transaction.transactional_id
        unmarked = self._unmarked.pop(transactional_id, None)
        if unmarked is None:
            unmarked = set(transaction.partitions)
        try:
            for partition in sorted(unmarked):
                self._mark(partition, transaction, coordinator_epoch)
                unmarked.discard(partition)
            self._record_completion(transaction)
        except KafkaError as error:
            logger.error("cannot complete the transaction of %s yet: %s", transactional_id, error)
            self._unmarked[transactional_id] = unmarked
            self._timers.schedule(
                ("complete transaction", transactional_id),
                RETRY_MS,
                lambda: self.complete(transaction, coordinator_epoch),
            )

    def _mark(self, partition: TopicPartition, transaction: Transaction, coordinator_epoch: int) -> None:
        try:
            self._partitions.leader(*partition).write_marker(
                transaction.producer_id,
                transaction.producer_epoch,
                transaction.state.committed,
                coordinator_epoch,
                transaction_version=transaction.client_version,
            )
        except KafkaError as error:
            if error.error not in _NEEDS_NO_MARKER:
                raise
            logger.info(
                "%s-%d goes without the marker of %s: %s", *partition, transaction.transactional_id, error
            )
