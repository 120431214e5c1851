"""The state of one transactional id, its transitions, and the records that keep it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from millrace.coordinator.records import StateRecord
from millrace.errors import Error, KafkaError
from millrace.wire.codec import MalformedMessage
from millrace.wire.messages.transaction_records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from millrace.wire.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

TopicPartition = tuple[str, int]

NOT_STARTED = -1
VALUE_VERSION = 1
MAX_EPOCH = 2**15 - 1
# Clients never get the last epoch: it is kept for fencing the holder of the one before.
LAST_CLIENT_EPOCH = MAX_EPOCH - 1

OLD_PROTOCOL, EPOCH_PER_TRANSACTION = 0, 2
"""Transaction versions (KIP-890): with 2 each transaction has its own epoch."""


class State(IntEnum):
    """The numbers are those of the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """As tools show it: PrepareCommit."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """Decided, with markers still to be written."""
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def committed(self) -> bool:
        return self in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)

    @property
    def aborted(self) -> bool:
        return self in (State.PREPARE_ABORT, State.COMPLETE_ABORT)


_STATUSES = frozenset(State)
STATES_BY_LABEL = {state.label: state for state in State}


class ProducerIdentity(NamedTuple):
    """The producer id and epoch in a producer's requests."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id and its present or last transaction; every transition makes a new one."""

    transactional_id: str
    producer_id: int
    timeout_ms: int
    updated_ms: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NOT_STARTED
    client_version: int = OLD_PROTOCOL
    last_epoch: int = field(default=NO_PRODUCER_EPOCH, compare=False)
    """The epoch before the present one, to recognise a repeated InitProducerId.

    Kafka's record has no field for it, so a coordinator that takes over does not know it.
    """

    @property
    def producer(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.producer_epoch)

    @property
    def next_producer(self) -> ProducerIdentity:
        """The producer after the transaction is complete; when the epochs are used up, it has a new id."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return self.producer
        return ProducerIdentity(self.next_producer_id, 0)

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_CLIENT_EPOCH

    def is_timed_out(self, now_ms: int) -> bool:
        return self.state is State.ONGOING and self.started_ms + self.timeout_ms < now_ms

    def is_idle_since(self, before_ms: int) -> bool:
        """Whether the id has no transaction, and has had none since a time."""
        return (
            self.state in (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
            and self.updated_ms <= before_ms
        )

    # Checks

    def check_producer(self, producer: ProducerIdentity) -> None:
        """Raise unless the producer is the one that holds the transactional id."""
        if producer.producer_id != self.producer_id:
            raise KafkaError(Error.INVALID_PRODUCER_ID_MAPPING)
        if producer.producer_epoch != self.producer_epoch:
            raise KafkaError(Error.PRODUCER_FENCED)

    def check_settled(self) -> None:
        """Raise while the end of a transaction is decided but not yet complete."""
        if self.state.is_prepared:
            raise KafkaError(Error.CONCURRENT_TRANSACTIONS)

    # Transitions

    def initialized(self, expected_epoch: int | None, timeout_ms: int, now_ms: int) -> Transaction:
        """The next epoch for a new producer, or for one that goes on from the epoch it names (KIP-360)."""
        epoch, last_epoch = self.producer_epoch + 1, NO_PRODUCER_EPOCH
        if expected_epoch is not None:
            last_epoch = self.producer_epoch
            if self.producer_epoch not in (NO_PRODUCER_EPOCH, expected_epoch):
                if expected_epoch != self.last_epoch:
                    raise KafkaError(Error.PRODUCER_FENCED)
                # The response to this producer's request was lost: it gets the epoch it was given.
                epoch, last_epoch = self.producer_epoch, self.last_epoch
        return self._emptied(ProducerIdentity(self.producer_id, epoch), last_epoch, timeout_ms, now_ms)

    def needs_new_producer_id(self, expected_epoch: int | None) -> bool:
        """Whether the producer has used up the epochs of its id."""
        if expected_epoch in (None, self.producer_epoch):
            return self.is_epoch_exhausted
        # Fencing took the last epoch of all, which no client may have.
        return self.producer_epoch == MAX_EPOCH and expected_epoch == self.last_epoch

    def rotated(
        self, new_producer_id: int, expected_epoch: int | None, timeout_ms: int, now_ms: int
    ) -> Transaction:
        """A new producer id, because the old one has no epochs left."""
        last_epoch = NO_PRODUCER_EPOCH if expected_epoch is None else expected_epoch
        return self._emptied(ProducerIdentity(new_producer_id, 0), last_epoch, timeout_ms, now_ms)

    def _emptied(
        self, producer: ProducerIdentity, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> Transaction:
        return replace(
            self,
            producer_id=producer.producer_id,
            previous_producer_id=self.producer_id,
            producer_epoch=producer.producer_epoch,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            state=State.EMPTY,
            partitions=frozenset(),
            started_ms=NOT_STARTED,
            updated_ms=now_ms,
        )

    def joined(self, partitions: Collection[TopicPartition], client_version: int, now_ms: int) -> Transaction:
        """With more partitions; the first ones start the transaction."""
        return replace(
            self,
            previous_producer_id=self.producer_id,
            state=State.ONGOING,
            partitions=self.partitions.union(partitions),
            started_ms=self.started_ms if self.state is State.ONGOING else now_ms,
            updated_ms=now_ms,
            client_version=client_version,
        )

    def prepared(
        self,
        *,
        committed: bool,
        client_version: int,
        now_ms: int,
        next_producer_id: int = NO_PRODUCER_ID,
    ) -> Transaction:
        """Decided: from here on it ends this way, whatever happens."""
        epoch, last_epoch = self.producer_epoch, self.last_epoch
        if client_version >= EPOCH_PER_TRANSACTION:
            epoch, last_epoch = min(epoch + 1, MAX_EPOCH), epoch
        return replace(
            self,
            previous_producer_id=self.producer_id,
            next_producer_id=next_producer_id,
            producer_epoch=epoch,
            last_epoch=last_epoch,
            state=State.PREPARE_COMMIT if committed else State.PREPARE_ABORT,
            started_ms=self.started_ms if self.state is State.ONGOING else now_ms,
            updated_ms=now_ms,
            client_version=client_version,
        )

    def completed(self, now_ms: int) -> Transaction:
        """With all its markers written."""
        producer_id, producer_epoch = self.next_producer
        return replace(
            self,
            producer_id=producer_id,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            producer_epoch=producer_epoch,
            state=State.COMPLETE_COMMIT if self.state.committed else State.COMPLETE_ABORT,
            partitions=frozenset(),
            updated_ms=now_ms,
        )

    # Records

    def record(self) -> StateRecord:
        """The log record of this state."""
        value = TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            transaction_partitions=None if self.state is State.EMPTY else _by_topic(self.partitions),
            transaction_last_update_timestamp_ms=self.updated_ms,
            transaction_start_timestamp_ms=self.started_ms,
            client_transaction_version=self.client_version,
        )
        key = TransactionLogKey(transactional_id=self.transactional_id)
        return StateRecord(key, value, VALUE_VERSION, unwritten=self.last_epoch)

    def tombstone(self) -> StateRecord:
        return StateRecord(TransactionLogKey(transactional_id=self.transactional_id), None)

    @classmethod
    def from_record(
        cls, key: TransactionLogKey, value: TransactionLogValue, last_epoch: int = NO_PRODUCER_EPOCH
    ) -> Transaction:
        if value.transaction_status not in _STATUSES:
            raise MalformedMessage(f"a transaction has the unknown status {value.transaction_status}")
        return cls(
            transactional_id=key.transactional_id,
            producer_id=value.producer_id,
            timeout_ms=value.transaction_timeout_ms,
            updated_ms=value.transaction_last_update_timestamp_ms,
            producer_epoch=value.producer_epoch,
            previous_producer_id=value.previous_producer_id,
            next_producer_id=value.next_producer_id,
            state=State(value.transaction_status),
            partitions=frozenset(
                (topic.topic, partition)
                for topic in value.transaction_partitions or ()
                for partition in topic.partition_ids
            ),
            started_ms=value.transaction_start_timestamp_ms,
            client_version=value.client_transaction_version,
            last_epoch=last_epoch,
        )


def _by_topic(partitions: Collection[TopicPartition]) -> list[PartitionsSchema]:
    topics: dict[str, PartitionsSchema] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, PartitionsSchema(topic=topic)).partition_ids.append(partition)
    return list(topics.values())
