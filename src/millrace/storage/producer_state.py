"""What a log knows of its idempotent producers: who may append what next, and what is a repetition."""

from collections.abc import Iterator
from typing import NamedTuple

from millrace.errors import Error, KafkaError
from millrace.wire.records import MAX_SEQUENCE, NO_SEQUENCE, BatchHeader, advance_sequence

# Clients have at most five batches in flight, so no older batch can be repeated.
REMEMBERED_BATCHES = 5
NO_TRANSACTION = -1
NO_COORDINATOR = -1


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
        self.next_sequence = batch.last_sequence + 1 if batch.last_sequence < MAX_SEQUENCE else 0

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


class ProducerStates:
    """Every producer of one log."""

    __slots__ = ("_producers",)

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}

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

    def check(self, header: BatchHeader) -> AppendedBatch | None:
        """Admit a batch by raising nothing; a batch that is already in the log is returned."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            # Unknown, or forgotten with its records: any sequence is a valid start.
            return None
        if header.producer_epoch == producer.epoch:
            if header.base_sequence == producer.next_sequence or not producer.batches:
                return None
            return _find_repeated(producer, header)
        if header.producer_epoch < producer.epoch:
            raise KafkaError(
                Error.INVALID_PRODUCER_EPOCH,
                f"Epoch {header.producer_epoch} of producer {header.producer_id} is smaller than the last "
                f"seen epoch {producer.epoch}",
            )
        if header.base_sequence != 0:
            raise KafkaError(
                Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {header.producer_id} starts its new epoch {header.producer_epoch} with sequence "
                f"number {header.base_sequence} instead of 0",
            )
        return None

    def record(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Note a batch that is now in the log; also how a restart replays the log."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._producers[header.producer_id] = Producer(
                header.producer_id, header.producer_epoch
            )
        elif producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        # Not the records' own time, which may be long past when old data is loaded.
        producer.last_timestamp = now_ms
        if header.base_sequence == NO_SEQUENCE:
            # Transaction markers carry a producer but no sequence.
            return
        delta = header.last_offset_delta
        first = header.base_sequence
        last = advance_sequence(first, delta)
        producer.add(AppendedBatch(first, last, base_offset + delta, delta, header.max_timestamp))

    def expire(self, before_ms: int) -> None:
        """Forget producers that were last heard of before a time."""
        expired = [
            producer.producer_id
            for producer in self._producers.values()
            if producer.last_timestamp < before_ms
            and producer.current_transaction_first_offset == NO_TRANSACTION
        ]
        for producer_id in expired:
            del self._producers[producer_id]

    def clear(self) -> None:
        """Forget everyone."""
        self._producers.clear()


def _find_repeated(producer: Producer, header: BatchHeader) -> AppendedBatch:
    last_sequence = header.last_sequence
    for batch in producer.batches:
        if batch.first_sequence == header.base_sequence and batch.last_sequence == last_sequence:
            return batch
    raise KafkaError(
        Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Out of order sequence number for producer {header.producer_id}: {header.base_sequence} follows "
        f"{producer.last_sequence}",
    )
