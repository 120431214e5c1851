"""Compaction of transactions: aborted records are dropped, and later the markers that no reader needs."""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from millrace.storage.transaction_index import AbortedTransaction
from millrace.wire.control_batch import read_end_marker
from millrace.wire.records import BatchHeader


class EndedTransaction(NamedTuple):
    """The transaction that a marker ends."""

    # Whether none of its batches are left, not even empty ones.
    is_gone: bool
    # Set if batches of an aborted transaction are left: readers must still learn of it.
    aborted: AbortedTransaction | None = None


class CleanedTransactions:
    """Follows the transactions of a log, batch by batch from its start."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._upcoming = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
        # By producer id.
        self._aborted: dict[int, AbortedTransaction] = {}
        self._producers_with_batches: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Take in a batch of records, and tell whether its transaction was aborted."""
        if not header.is_transactional:
            return False
        self._begin_up_to(header.last_offset)
        self._producers_with_batches.add(header.producer_id)
        return header.producer_id in self._aborted

    def end(self, header: BatchHeader, batch: bytes) -> EndedTransaction:
        """Take in a control batch."""
        self._begin_up_to(header.last_offset)
        marker = read_end_marker(batch)
        if marker is None:
            # Emptied in an earlier pass, or no marker: then it is not ours to judge.
            return EndedTransaction(is_gone=not header.record_count)
        aborted = None if marker.committed else self._aborted.pop(header.producer_id, None)
        if header.producer_id not in self._producers_with_batches:
            return EndedTransaction(is_gone=True)
        self._producers_with_batches.discard(header.producer_id)
        return EndedTransaction(is_gone=False, aborted=aborted)

    def _begin_up_to(self, offset: int) -> None:
        while self._upcoming and self._upcoming[0].first_offset <= offset:
            transaction = self._upcoming.popleft()
            self._aborted.setdefault(transaction.producer_id, transaction)
