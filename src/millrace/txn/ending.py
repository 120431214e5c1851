"""Whether an EndTxn request ends a transaction, repeats the end that was made, or is out of place.

In the old protocol producer and state decide. With an epoch per transaction (KIP-890) a repeated request is
known by its epoch, which is the one before the present:

| state          | abort, repeated | abort, present epoch | commit, repeated | commit, present epoch |
|----------------|-----------------|----------------------|------------------|-----------------------|
| Empty          | fenced          | ends                 | fenced           | INVALID_TXN_STATE     |
| CompleteAbort  | repeats         | ends                 | INVALID_TXN_STATE| INVALID_TXN_STATE     |
| CompleteCommit | INVALID_TXN_STATE| ends                | repeats          | INVALID_TXN_STATE     |

An abort may end a transaction that never had a partition: the producer cannot know whether what it sent has
arrived, and the new epoch shuts out whatever is still under way.
"""

from __future__ import annotations

from millrace.errors import Error, KafkaError
from millrace.txn.transaction_state import LAST_CLIENT_EPOCH, ProducerIdentity, State, Transaction


def repeats_end(transaction: Transaction, producer: ProducerIdentity, *, committed: bool) -> bool:
    """Old protocol: True when the transaction has ended this way already; raises when it cannot."""
    transaction.check_producer(producer)
    if transaction.state is State.ONGOING:
        return False
    _check_outcome(transaction, committed=committed)
    return True


def repeats_end_by_epoch(transaction: Transaction, producer: ProducerIdentity, *, committed: bool) -> bool:
    """Epoch per transaction: True when the transaction has ended this way already; raises when it cannot."""
    moved_on = (
        transaction.producer_epoch == 0
        and producer == ProducerIdentity(transaction.previous_producer_id, LAST_CLIENT_EPOCH)
    )  # fmt: skip
    if producer.producer_id != transaction.producer_id and not moved_on:
        raise KafkaError(Error.INVALID_PRODUCER_ID_MAPPING)
    if moved_on or producer.producer_epoch + 1 == transaction.producer_epoch:
        if transaction.state in (State.EMPTY, State.ONGOING):
            raise KafkaError(Error.PRODUCER_FENCED)
        _check_outcome(transaction, committed=committed)
        return True
    if producer.producer_epoch != transaction.producer_epoch or transaction.state.is_prepared:
        raise KafkaError(Error.PRODUCER_FENCED)
    if transaction.state is not State.ONGOING and committed:
        raise _invalid_state(transaction, committed=committed)
    return False


def _check_outcome(transaction: Transaction, *, committed: bool) -> None:
    if not (transaction.state.committed if committed else transaction.state.aborted):
        raise _invalid_state(transaction, committed=committed)
    transaction.check_settled()


def _invalid_state(transaction: Transaction, *, committed: bool) -> KafkaError:
    wanted = "commit" if committed else "abort"
    return KafkaError(
        Error.INVALID_TXN_STATE,
        f"Cannot {wanted}: the transaction of {transaction.transactional_id} is {transaction.state.label}.",
    )
