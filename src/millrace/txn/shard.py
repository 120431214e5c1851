"""The transactional ids behind one partition of `__transaction_state`."""

from __future__ import annotations

from collections.abc import Callable

from millrace.coordinator.records import Origin, StateRecord
from millrace.txn.transaction_state import State, Transaction
from millrace.wire.messages.transaction_records import TransactionLogKey, TransactionLogValue

SCHEMAS = {TransactionLogKey.record_type: (TransactionLogKey, TransactionLogValue)}


class TransactionShard:
    """Owned by the broker loop; not thread-safe."""

    def __init__(
        self,
        index: int,
        on_loaded: Callable[[TransactionShard], None],
        on_unloaded: Callable[[TransactionShard], None],
    ) -> None:
        self.index = index
        self.transactions: dict[str, Transaction] = {}
        self.ongoing: set[str] = set()
        """The ids that a timeout could concern."""
        self.last_epochs: dict[str, int] = {}
        """By id: the epoch before the present one, to recognise a repeated InitProducerId.

        No record keeps it: a coordinator that takes over does not know it.
        """
        self._on_loaded = on_loaded
        self._on_unloaded = on_unloaded

    def replay(self, record: StateRecord, origin: Origin) -> None:
        key, value = record.key, record.value
        assert isinstance(key, TransactionLogKey)
        if value is None:
            self.transactions.pop(key.transactional_id, None)
            self.ongoing.discard(key.transactional_id)
            self.last_epochs.pop(key.transactional_id, None)
            return
        assert isinstance(value, TransactionLogValue)
        transaction = Transaction.from_record(key, value)
        self.transactions[transaction.transactional_id] = transaction
        if transaction.state is State.ONGOING:
            self.ongoing.add(transaction.transactional_id)
        else:
            self.ongoing.discard(transaction.transactional_id)

    def end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """No record here belongs to a transaction itself."""

    def loaded(self) -> None:
        self._on_loaded(self)

    def unloaded(self) -> None:
        self._on_unloaded(self)
