"""The transaction coordinator: every transactional id, kept in `__transaction_state`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import TypeVar

from millrace.clock import Clock
from millrace.config import BrokerConfig
from millrace.coordinator.runtime import Leadership, Runtime
from millrace.deferred import Deferred, Eventual
from millrace.errors import Error, KafkaError
from millrace.metrics import Family
from millrace.replication.hosted_partitions import HostedPartitions
from millrace.steps import Steps
from millrace.timers import Timers
from millrace.txn.ending import repeats_end, repeats_end_by_epoch
from millrace.txn.marker_channel import MarkerChannel
from millrace.txn.markers import Markers
from millrace.txn.producer_ids import ProducerIdAllocator
from millrace.txn.shard import SCHEMAS, TransactionShard
from millrace.txn.transaction_state import (
    EPOCH_PER_TRANSACTION,
    LAST_CLIENT_EPOCH,
    OLD_PROTOCOL,
    ProducerIdentity,
    State,
    TopicPartition,
    Transaction,
)
from millrace.wire.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

logger = logging.getLogger(__name__)

TRANSACTION_TOPIC = "__transaction_state"
METRIC_TYPE = "transaction-coordinator-metrics"

R = TypeVar("R")

CreateTopic = Callable[[str, int, dict[str, str]], Awaitable[object]]
"""Creates an internal topic: name, partitions, configs."""


class Transactions:
    """Owned by the broker loop; not thread-safe.

    An end is decided, committed to the log, carried to every partition by markers, and recorded as complete.
    Where this broker has the only replica of everything, that is one step. Otherwise clients see
    CONCURRENT_TRANSACTIONS in between.
    """

    def __init__(
        self,
        *,
        partition_count: Callable[[str], int | None],
        partitions: HostedPartitions,
        producer_ids: ProducerIdAllocator,
        markers: MarkerChannel,
        create_topic: CreateTopic,
        config: BrokerConfig,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._config = config
        self._clock = clock
        self._timers = timers
        self._producer_ids = producer_ids
        self._markers = Markers(markers, timers, self._record_completion)
        self.runtime: Runtime[TransactionShard] = Runtime(
            TRANSACTION_TOPIC,
            SCHEMAS,
            lambda index: TransactionShard(index, self._loaded, self._unloaded),
            partition_count=partition_count,
            partitions=partitions,
            create_topic=lambda: create_topic(
                TRANSACTION_TOPIC, config.transaction_state_log_num_partitions, self._topic_configs()
            ),
            clock=clock,
            timers=timers,
        )

    def _topic_configs(self) -> dict[str, str]:
        return {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "segment.bytes": str(self._config.transaction_state_log_segment_bytes),
        }

    def start(self) -> None:
        """Begin to look for transactions that take too long and ids that are not used any more."""
        self._repeat(
            self._config.transaction_abort_timed_out_transaction_cleanup_interval_ms, self.abort_timed_out
        )
        self._repeat(
            self._config.transaction_remove_expired_transaction_cleanup_interval_ms, self.remove_expired
        )

    def _repeat(self, interval_ms: int, work: Callable[[], None]) -> None:
        def again() -> None:
            self._repeat(interval_ms, work)
            work()

        self._timers.schedule(("transactions", work.__name__), interval_ms, again)

    def families(self) -> Steps[list[Family]]:
        """Loads and writes."""
        yield
        return self.runtime.families(METRIC_TYPE)

    # Finding

    def __iter__(self) -> Iterator[Transaction]:
        for shard in self.runtime.shards:
            yield from shard.transactions.values()

    def find(self, transactional_id: str) -> Transaction | None:
        """The state of an id; raises when its coordinator is not ready."""
        return self.runtime.shard_of(transactional_id).transactions.get(transactional_id)

    def _get(self, transactional_id: str) -> Transaction:
        if not transactional_id:
            raise KafkaError(Error.INVALID_REQUEST, "A transactional id must not be empty.")
        transaction = self.find(transactional_id)
        if transaction is None:
            raise KafkaError(Error.INVALID_PRODUCER_ID_MAPPING)
        return transaction

    # Producers

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdentity | None = None
    ) -> ProducerIdentity:
        """Give the id to a producer and fence the one that held it, aborting a transaction it left open.

        A producer that names the identity it had goes on with its next epoch, unless another has taken over.
        """
        if not transactional_id:
            raise KafkaError(Error.INVALID_REQUEST, "A transactional id must not be empty.")
        if not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            raise KafkaError(Error.INVALID_TRANSACTION_TIMEOUT)
        transaction = self.find(transactional_id) or self._new_transaction(transactional_id, timeout_ms)
        _check_expected(transaction, expected)
        transaction.check_settled()
        if transaction.state is State.ONGOING:
            transaction = self._fence(transaction)
        changed = self._initialize(transaction, timeout_ms, expected)
        self._write(changed)
        logger.info("%s is now producer %d in epoch %d", transactional_id, *changed.producer)
        return changed.producer

    def _new_transaction(self, transactional_id: str, timeout_ms: int) -> Transaction:
        return Transaction(transactional_id, self._new_producer_id(), timeout_ms, self._clock.now_ms())

    def _new_producer_id(self) -> int:
        try:
            return self._producer_ids.allocate()
        except OSError as error:
            logger.error("cannot write down the producer ids in use: %s", error)
            raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE) from error

    def _initialize(
        self, transaction: Transaction, timeout_ms: int, expected: ProducerIdentity | None
    ) -> Transaction:
        """The transactional id with its next producer."""
        now_ms = self._clock.now_ms()
        expected_epoch = None if expected is None else expected.producer_epoch
        if transaction.needs_new_producer_id(expected_epoch):
            return transaction.rotated(self._new_producer_id(), expected_epoch, timeout_ms, now_ms)
        return transaction.initialized(expected_epoch, timeout_ms, now_ms)

    def _fence(self, transaction: Transaction) -> Transaction:
        """Abort what is open under a new epoch, so that its producer can do no more."""
        self._end(transaction, committed=False, client_version=EPOCH_PER_TRANSACTION)
        fenced = self._get(transaction.transactional_id)
        fenced.check_settled()
        return fenced

    # Partitions

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        client_version: int = OLD_PROTOCOL,
    ) -> None:
        """Make partitions part of the producer's transaction, which begins with the first of them."""
        transaction = self._get(transactional_id)
        transaction.check_producer(producer)
        transaction.check_settled()
        if transaction.state is State.ONGOING and transaction.partitions.issuperset(partitions):
            return
        self._write(transaction.joined(partitions, client_version, self._clock.now_ms()))

    def check_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Error]:
        """Whether each partition is part of the producer's transaction."""
        transaction = self._get(transactional_id)
        transaction.check_producer(producer)
        transaction.check_settled()
        return {
            partition: Error.NONE if partition in transaction.partitions else Error.TRANSACTION_ABORTABLE
            for partition in partitions
        }

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        topic: str,
        partition: int,
        *,
        joins: bool,
        knows_abortable: bool = True,
    ) -> Deferred[None]:
        """Admit the first append of a transaction to a partition, or fail with the append's error (KIP-890).

        With `joins` the partition becomes part of the transaction; otherwise it must be one already, or else
        a late request of a past transaction would open one that is never ended.
        """
        producer = ProducerIdentity(producer_id, producer_epoch)
        try:
            if joins:
                self.add_partitions(transactional_id, producer, [(topic, partition)], EPOCH_PER_TRANSACTION)
            elif self._config.transaction_partition_verification_enable:
                outcome = self.check_partitions(transactional_id, producer, [(topic, partition)])
                if outcome[topic, partition]:
                    raise KafkaError(outcome[topic, partition])
        except KafkaError as error:
            if error.error is Error.PRODUCER_FENCED:
                error = KafkaError(Error.INVALID_PRODUCER_EPOCH)
            if error.error is Error.TRANSACTION_ABORTABLE and not knows_abortable:
                error = KafkaError(Error.INVALID_TXN_STATE)
            return Deferred.failing(error)
        admitted = self.settled(transactional_id, None)
        return Deferred.of(None) if admitted is None else admitted

    # Ending

    def end(
        self, transactional_id: str, producer: ProducerIdentity, *, committed: bool, client_version: int
    ) -> ProducerIdentity:
        """Commit or abort the producer's transaction; returns what the producer is from now on."""
        transaction = self._get(transactional_id)
        repeats = repeats_end_by_epoch if client_version >= EPOCH_PER_TRANSACTION else repeats_end
        if repeats(transaction, producer, committed=committed):
            return transaction.producer
        next_producer_id = NO_PRODUCER_ID
        if client_version >= EPOCH_PER_TRANSACTION and transaction.is_epoch_exhausted:
            next_producer_id = self._new_producer_id()
        return self._end(
            transaction,
            committed=committed,
            client_version=client_version,
            next_producer_id=next_producer_id,
        )

    def _end(
        self,
        transaction: Transaction,
        *,
        committed: bool,
        client_version: int,
        next_producer_id: int = NO_PRODUCER_ID,
    ) -> ProducerIdentity:
        prepared = transaction.prepared(
            committed=committed,
            client_version=client_version,
            now_ms=self._clock.now_ms(),
            next_producer_id=next_producer_id,
        )
        self._complete_once(self._write(prepared), [prepared])
        return prepared.next_producer

    def _complete_once(self, decided: Deferred[None], transactions: Collection[Transaction]) -> None:
        """Write markers as soon as the decision for them is committed: it cannot be taken back then."""

        def complete(outcome: BaseException | None) -> None:
            # Another coordinator has taken over, and completes what it finds decided.
            if outcome is not None:
                return
            for transaction in transactions:
                index = self.runtime.partition_of(transaction.transactional_id)
                self._markers.complete(transaction, self.runtime.leader_epoch(index))

        if transactions:
            decided.then(complete)

    def _record_completion(self, prepared: Transaction) -> None:
        self._write(prepared.completed(self._clock.now_ms()))

    def _loaded(self, shard: TransactionShard) -> None:
        """Complete the transactions that were decided before this broker took over."""
        for transaction in shard.transactions.values():
            self._producer_ids.skip_past(max(transaction.producer_id, transaction.next_producer_id))
        prepared = [found for found in shard.transactions.values() if found.state.is_prepared]
        self._complete_once(self.runtime.committed(shard.index), prepared)

    def _unloaded(self, shard: TransactionShard) -> None:
        self._markers.forget(shard.transactions)

    def _write(self, transaction: Transaction) -> Deferred[None]:
        """Append a state and replay it; resolves when it is committed."""
        index = self.runtime.partition_of(transaction.transactional_id)
        return self.runtime.append(index, [transaction.record()])

    def settled(
        self,
        transactional_id: str,
        response: R,
        on_error: Callable[[KafkaError], R] | None = None,
        *,
        since: Leadership[TransactionShard] | None = None,
    ) -> Eventual[R]:
        """A response about an id, once the state that it was made from is committed."""
        return self.runtime.settled(transactional_id, response, on_error, since=since)

    # Upkeep

    def abort_timed_out(self) -> None:
        """Abort transactions that are open for longer than their producers asked for."""
        now_ms = self._clock.now_ms()
        for shard in self.runtime.shards:
            for transactional_id in sorted(shard.ongoing):
                transaction = shard.transactions[transactional_id]
                if transaction.is_timed_out(now_ms):
                    self._abort_timed_out(transaction)

    def _abort_timed_out(self, transaction: Transaction) -> None:
        logger.info(
            "aborting the transaction of %s, open for longer than %d ms",
            transaction.transactional_id,
            transaction.timeout_ms,
        )
        try:
            self._end(transaction, committed=False, client_version=EPOCH_PER_TRANSACTION)
        except KafkaError as error:
            logger.error("%s: the transaction cannot be aborted yet: %s", transaction.transactional_id, error)

    def remove_expired(self) -> None:
        """Forget ids that had no transaction for transactional.id.expiration.ms."""
        before_ms = self._clock.now_ms() - self._config.transactional_id_expiration_ms
        for shard in self.runtime.shards:
            tombstones = [
                transaction.tombstone()
                for transaction in shard.transactions.values()
                if transaction.is_idle_since(before_ms)
            ]
            if not tombstones:
                continue
            try:
                self.runtime.append(shard.index, tombstones)
            except KafkaError as error:
                logger.error("expired transactional ids cannot be removed yet: %s", error)


def _check_expected(transaction: Transaction, expected: ProducerIdentity | None) -> None:
    """A producer that names an identity must be the one that holds the id, or have held it last."""
    if expected is None or transaction.producer_epoch == NO_PRODUCER_EPOCH:
        return
    if expected.producer_id == transaction.producer_id:
        # An epoch of the past is no reason to abort what is open.
        if transaction.state is not State.ONGOING or expected.producer_epoch == transaction.producer_epoch:
            return
    # Its id had no epochs left, so that it was given a new one, and the answer was lost.
    elif expected == ProducerIdentity(transaction.previous_producer_id, LAST_CLIENT_EPOCH):
        return
    raise KafkaError(Error.PRODUCER_FENCED)
