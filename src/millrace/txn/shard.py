"""The transactional ids behind one partition of `__transaction_state`."""

from __future__ import annotations

from collections.abc import Callable

from millrace.coordinator.records import Origin, StateRecord
from millrace.txn.transaction_state import State, Transaction
from millrace.wire.messages.transaction_records import TransactionLogKey, TransactionLogValue
from millrace.wire.records import NO_PRODUCER_EPOCH

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
        self._on_loaded = on_loaded
        self._on_unloaded = on_unloaded

    def replay(self, record: StateRecord, origin: Origin) -> None:
        key, value = record.key, record.value
        assert isinstance(key, TransactionLogKey)
        if value is None:
            self.transactions.pop(key.transactional_id, None)
            self.ongoing.discard(key.transactional_id)
            return
        assert isinstance(value, TransactionLogValue)
        last_epoch = origin.unwritten if isinstance(origin.unwritten, int) else NO_PRODUCER_EPOCH
        transaction = Transaction.from_record(key, value, last_epoch)
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
