"""Carries decided transactions to their end: a marker in every partition, then the record of completion."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial

from millrace.errors import Error, KafkaError
from millrace.timers import Timers
from millrace.txn.marker_channel import Marker, MarkerChannel
from millrace.txn.transaction_state import TopicPartition, Transaction

logger = logging.getLogger(__name__)

RETRY_MS = 1000

# The topic is deleted, or WriteTxnMarkers with a newer epoch has ended the transaction there.
_NEEDS_NO_MARKER = (
    Error.UNKNOWN_TOPIC_OR_PARTITION,
    Error.INVALID_PRODUCER_EPOCH,
    Error.TRANSACTION_COORDINATOR_FENCED,
)


class _Completion:
    """A decided transaction on its way to completion."""

    __slots__ = ("in_flight", "marker", "transaction", "unmarked")

    def __init__(self, transaction: Transaction, coordinator_epoch: int) -> None:
        self.transaction = transaction
        self.marker = Marker(
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.state.committed,
            coordinator_epoch,
            transaction.client_version,
        )
        self.unmarked = set(transaction.partitions)
        self.in_flight = 0


class Markers:
    """Owned by the broker loop; not thread-safe.

    A marker that cannot be written now, because its partition has no leader or a disk is full, is tried again
    until it can. A coordinator that takes over writes every marker of a decided transaction once more: a
    second marker changes nothing.
    """

    def __init__(
        self, channel: MarkerChannel, timers: Timers, record_completion: Callable[[Transaction], object]
    ) -> None:
        self._channel = channel
        self._timers = timers
        self._record_completion = record_completion
        # By transactional id.
        self._completions: dict[str, _Completion] = {}

    def complete(self, transaction: Transaction, coordinator_epoch: int) -> None:
        """Write the markers of a transaction whose end is committed, and then that it is complete."""
        completion = _Completion(transaction, coordinator_epoch)
        self._completions[transaction.transactional_id] = completion
        self._write(completion)

    def forget(self, transactional_ids: Iterable[str]) -> None:
        """Leave transactions to another coordinator."""
        for transactional_id in transactional_ids:
            if self._completions.pop(transactional_id, None) is not None:
                self._timers.cancel(_retry_key(transactional_id))

    def _write(self, completion: _Completion) -> None:
        unmarked = sorted(completion.unmarked)
        if not unmarked:
            self._finish(completion)
            return
        completion.in_flight = len(unmarked)
        for partition in unmarked:
            written = self._channel.write(partition, completion.marker)
            written.then(partial(self._written, completion, partition))

    def _written(
        self, completion: _Completion, partition: TopicPartition, outcome: BaseException | None
    ) -> None:
        transactional_id = completion.transaction.transactional_id
        if self._completions.get(transactional_id) is not completion:
            return
        if outcome is None:
            completion.unmarked.discard(partition)
        elif isinstance(outcome, KafkaError) and outcome.error in _NEEDS_NO_MARKER:
            logger.info("%s-%d needs no marker of %s: %s", *partition, transactional_id, outcome)
            completion.unmarked.discard(partition)
        else:
            # A partition without a leader is no fault of the broker, and soon has another.
            is_led = not isinstance(outcome, KafkaError) or outcome.error is not Error.NOT_LEADER_OR_FOLLOWER
            logger.log(
                logging.ERROR if is_led else logging.INFO,
                "cannot write the marker of %s to %s-%d yet: %s",
                transactional_id,
                *partition,
                outcome,
            )
        completion.in_flight -= 1
        if completion.in_flight:
            return
        if completion.unmarked:
            self._retry(completion)
        else:
            self._finish(completion)

    def _finish(self, completion: _Completion) -> None:
        transactional_id = completion.transaction.transactional_id
        try:
            self._record_completion(completion.transaction)
        except KafkaError as error:
            logger.error("cannot complete the transaction of %s yet: %s", transactional_id, error)
            self._retry(completion)
        else:
            del self._completions[transactional_id]

    def _retry(self, completion: _Completion) -> None:
        transactional_id = completion.transaction.transactional_id
        self._timers.schedule(_retry_key(transactional_id), RETRY_MS, lambda: self._write(completion))


def _retry_key(transactional_id: str) -> tuple[str, str]:
    return "complete transaction", transactional_id
