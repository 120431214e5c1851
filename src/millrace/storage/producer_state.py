"""The producers of a log: their next sequence numbers, recent batches and open transactions."""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from millrace.errors import Error, KafkaError
from millrace.storage.append_origin import AppendOrigin
from millrace.storage.transaction_index import AbortedTransaction
from millrace.wire.control_batch import EndMarker
from millrace.wire.records import MAX_SEQUENCE, NO_SEQUENCE, TRANSACTIONAL_BIT, BatchHeader

# Clients have at most five batches in flight, so no older batch can be repeated.
REMEMBERED_BATCHES = 5
NO_TRANSACTION = -1
NO_COORDINATOR = -1
MAX_EPOCH = 2**15 - 1
# From this transaction version on each transaction's marker has an epoch of its own (KIP-890).
EPOCH_PER_TRANSACTION = 2


class AppendedBatch(NamedTuple):
    """A batch that a producer has in the log."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class Producer:
    """One producer's state in one partition."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_transaction_first_offset",
        "epoch",
        "last_timestamp",
        "next_sequence",
        "producer_id",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: list[AppendedBatch] = []
        self.next_sequence = 0
        self.last_timestamp = -1
        self.coordinator_epoch = NO_COORDINATOR
        self.current_transaction_first_offset = NO_TRANSACTION

    @property
    def has_open_transaction(self) -> bool:
        return self.current_transaction_first_offset != NO_TRANSACTION

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1

    def add(self, batch: AppendedBatch) -> None:
        """Remember the producer's newest batch."""
        batches = self.batches
        batches.append(batch)
        if len(batches) > REMEMBERED_BATCHES:
            del batches[0]
        self.next_sequence = (batch.last_sequence + 1) & MAX_SEQUENCE

    def take_epoch(self, epoch: int) -> None:
        """Continue with an epoch; a new one starts its sequence numbers at 0 again."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
            self.next_sequence = 0

    def recall(self, others: "ProducerStates") -> None:
        """Take over the longer memory that others have of the same producer."""
        other = others.get(self.producer_id)
        if (
            other is not None
            and other.epoch == self.epoch
            and other.last_offset == self.last_offset
            and len(other.batches) > len(self.batches)
        ):
            self.batches = other.batches


class Verification(NamedTuple):
    """A producer that has asked to begin a transaction in this log and has not appended anything yet."""

    producer_epoch: int
    # Batches that were sent together arrive in order, but the first may have been refused.
    lowest_sequence: int
    bumps_epochs: bool
    asked_ms: int


class _EndedTransaction(NamedTuple):
    """A transaction from its first record to its marker."""

    first_offset: int
    marker_offset: int


class ProducerStates:
    """Every producer of one log."""

    __slots__ = (
        "_high_watermark",
        "_open_transactions",
        "_producers",
        "_unreplicated",
        "_verifications",
        "first_open_offset",
        "first_unstable_offset",
    )

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        # Producer id to first offset.
        self._open_transactions: dict[int, int] = {}
        self._verifications: dict[int, Verification] = {}
        # Ended transactions whose marker is not on every in-sync replica yet, in the order of their markers.
        self._unreplicated: deque[_EndedTransaction] = deque()
        self._high_watermark: int | None = None
        self.first_open_offset: int | None = None
        """Start of the earliest open transaction."""
        self.first_unstable_offset: int | None = None
        """Start of the earliest transaction that is open, or whose end is not replicated yet."""

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._producers.values())

    def get(self, producer_id: int) -> Producer | None:
        """A producer by its id."""
        return self._producers.get(producer_id)

    def restore(self, producer: Producer) -> None:
        """Take over a producer from a snapshot."""
        self._producers[producer.producer_id] = producer
        if producer.has_open_transaction:
            self._note_open(producer.producer_id, producer.current_transaction_first_offset)

    # Data

    def check(self, header: BatchHeader, origin: AppendOrigin = AppendOrigin.CLIENT) -> AppendedBatch | None:
        """Admit a batch by raising nothing; a batch that is already in the log is returned."""
        producer = self._producers.get(header.producer_id)
        # Of one that is unknown, or forgotten with its records, any sequence is a valid start.
        if producer is not None and (
            header.base_sequence != producer.next_sequence or header.producer_epoch != producer.epoch
        ):
            repeated = _check_order(producer, header, origin)
            if repeated is not None:
                return repeated
        if header.attributes & TRANSACTIONAL_BIT:
            self._check_transactional(header, producer, origin)
        elif producer is not None and producer.current_transaction_first_offset != NO_TRANSACTION:
            raise KafkaError(
                Error.INVALID_TXN_STATE,
                f"Producer {header.producer_id} writes outside of its open transaction",
            )
        return None

    def _check_transactional(
        self, header: BatchHeader, producer: Producer | None, origin: AppendOrigin
    ) -> None:
        if origin is AppendOrigin.CLIENT:
            raise KafkaError(
                Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                f"Producer {header.producer_id} writes to a transaction without a transactional id",
            )
        asked = self._verifications.get(header.producer_id)
        if asked is None or asked.producer_epoch != header.producer_epoch:
            # What a fenced producer has asked for says nothing about the one in its place.
            return
        starts_anew = asked.bumps_epochs and producer is None and header.base_sequence != 0
        if starts_anew or header.base_sequence > asked.lowest_sequence:
            raise _out_of_order(header, f"the transaction starts with {asked.lowest_sequence}")

    def record(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Note a batch that is now in the log; also how a restart replays the log."""
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = self._producer_of_epoch(header.producer_id, header.producer_epoch)
        # Not the records' own time, which may be long past when old data is loaded.
        producer.last_timestamp = now_ms
        delta = header.last_offset_delta
        first = header.base_sequence
        # Sequences wrap to 0 after the largest; what a coordinator writes has none.
        last = (first + delta) & MAX_SEQUENCE if first >= 0 else NO_SEQUENCE
        producer.add(AppendedBatch(first, last, base_offset + delta, delta, header.max_timestamp))
        if header.attributes & TRANSACTIONAL_BIT:
            self._verifications.pop(header.producer_id, None)
            if producer.current_transaction_first_offset == NO_TRANSACTION:
                producer.current_transaction_first_offset = base_offset
                self._note_open(header.producer_id, base_offset)

    def _producer_of_epoch(self, producer_id: int, epoch: int) -> Producer:
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = Producer(producer_id, epoch)
        producer.take_epoch(epoch)
        return producer

    # Transactions

    def begins_transaction(self, header: BatchHeader, now_ms: int, *, bumps_epochs: bool) -> bool:
        """Whether the coordinator must agree before a transactional batch may be appended.

        bumps_epochs: the producer takes a new epoch for each transaction.
        """
        producer_id, epoch = header.producer_id, header.producer_epoch
        producer = self._producers.get(producer_id)
        if producer is not None and producer.epoch == epoch and producer.has_open_transaction:
            return False
        lowest_sequence = header.base_sequence
        asked = self._verifications.get(producer_id)
        if asked is not None and asked.producer_epoch == epoch:
            lowest_sequence = min(lowest_sequence, asked.lowest_sequence)
        if asked is None or asked.producer_epoch <= epoch:
            self._verifications[producer_id] = Verification(epoch, lowest_sequence, bumps_epochs, now_ms)
        return True

    def _note_open(self, producer_id: int, first_offset: int) -> None:
        self._open_transactions[producer_id] = first_offset
        if self.first_open_offset is None or first_offset < self.first_open_offset:
            self.first_open_offset = first_offset
            self._find_first_unstable()

    @property
    def high_watermark(self) -> int | None:
        """Markers before this offset are on every in-sync replica; None where all of them are."""
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int | None) -> None:
        self._high_watermark = offset
        ended = self._unreplicated
        if ended:
            while ended and (offset is None or ended[0].marker_offset < offset):
                ended.popleft()
            self._find_first_unstable()

    def _find_first_unstable(self) -> None:
        first = self.first_open_offset
        if self._unreplicated:
            earliest = min(ended.first_offset for ended in self._unreplicated)
            first = earliest if first is None else min(first, earliest)
        self.first_unstable_offset = first

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> None:
        """Admit the end of a transaction by raising nothing."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return
        if producer_epoch < producer.epoch:
            raise _old_epoch(producer, producer_epoch)
        if (
            transaction_version >= EPOCH_PER_TRANSACTION
            and producer_epoch == producer.epoch
            and producer.has_open_transaction
            and producer_epoch != MAX_EPOCH
        ):
            # The marker of an earlier transaction; without an open one it is merely repeated.
            raise _old_epoch(producer, producer_epoch)
        if coordinator_epoch < producer.coordinator_epoch:
            raise KafkaError(
                Error.TRANSACTION_COORDINATOR_FENCED,
                f"A coordinator of epoch {coordinator_epoch} cannot end a transaction of producer "
                f"{producer_id}: one of epoch {producer.coordinator_epoch} has taken over",
            )

    def end_transaction(
        self, producer_id: int, producer_epoch: int, marker: EndMarker, offset: int, now_ms: int
    ) -> AbortedTransaction | None:
        """Record a marker that is now in the log; returns the transaction if it was aborted."""
        producer = self._producer_of_epoch(producer_id, producer_epoch)
        producer.last_timestamp = now_ms
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.current_transaction_first_offset = NO_TRANSACTION
        self._verifications.pop(producer_id, None)
        first_offset = self._open_transactions.pop(producer_id, None)
        if first_offset is None:
            # A marker without records changes nothing for readers.
            return None
        if first_offset == self.first_open_offset:
            self.first_open_offset = min(self._open_transactions.values(), default=None)
        if self._high_watermark is not None and offset >= self._high_watermark:
            self._unreplicated.append(_EndedTransaction(first_offset, offset))
        self._find_first_unstable()
        if marker.committed:
            return None
        stable = offset + 1 if self.first_open_offset is None else self.first_open_offset
        return AbortedTransaction(producer_id, first_offset, offset, stable)

    # Forgetting

    def expire(self, before_ms: int) -> None:
        """Forget producers whose last batch is older than a time."""
        expired = [
            producer.producer_id
            for producer in self._producers.values()
            if producer.last_timestamp < before_ms and not producer.has_open_transaction
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        for producer_id in [pid for pid, asked in self._verifications.items() if asked.asked_ms < before_ms]:
            del self._verifications[producer_id]


def _check_order(producer: Producer, header: BatchHeader, origin: AppendOrigin) -> AppendedBatch | None:
    """A batch that is not simply the next one: of a new epoch, of an old one, repeated or out of order."""
    if header.producer_epoch < producer.epoch:
        raise _old_epoch(producer, header.producer_epoch)
    if origin is AppendOrigin.COORDINATOR:
        return None
    if header.producer_epoch == producer.epoch:
        return _find_repeated(producer, header)
    if header.base_sequence != 0:
        raise _out_of_order(header, f"the new epoch {header.producer_epoch} starts with 0")
    return None


def _old_epoch(producer: Producer, epoch: int) -> KafkaError:
    return KafkaError(
        Error.INVALID_PRODUCER_EPOCH,
        f"Epoch {epoch} of producer {producer.producer_id} is not past the last seen epoch {producer.epoch}",
    )


def _find_repeated(producer: Producer, header: BatchHeader) -> AppendedBatch:
    last_sequence = header.last_sequence
    for batch in producer.batches:
        if batch.first_sequence == header.base_sequence and batch.last_sequence == last_sequence:
            return batch
    raise _out_of_order(header, f"the last one was {producer.last_sequence}")


def _out_of_order(header: BatchHeader, known: str) -> KafkaError:
    return KafkaError(
        Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Out of order sequence number {header.base_sequence} of producer {header.producer_id}: {known}",
    )
