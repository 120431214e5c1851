"""The transactional producer of the exactly-once sink: its settings, its retries, its errors.

The transactional id belongs to a task of a query. Taking it over fences the previous owner (a lost executor,
a speculative attempt, an earlier run of the query) and settles the transaction that it left open. Only after
that is the batch mark of the task read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

T = TypeVar("T")

TRANSACTION_TIMEOUT_MS = 600_000
CALL_SECONDS = 10.0
PAUSE_SECONDS = 0.05

# The clients report their errors as exceptions too.
SILENCE = logging.Logger("silence")
SILENCE.disabled = True

PRODUCER_SETTINGS: Mapping[str, Any] = {
    # The partitioner of Java clients, so that the records of a key stay together.
    "partitioner": "murmur2_random",
    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
    # The broker decides which records are too large.
    "message.max.bytes": 100_000_000,
    # `TaskProducer` bounds the queue itself: a batch that the client refuses in part would be out of order.
    "queue.buffering.max.messages": 0,
    "queue.buffering.max.kbytes": 2_147_483_647,
    "delivery.report.only.error": True,
    # A producer that connects at once is ready in 3 ms, otherwise in 15 to 500 ms.
    "enable.sparse.connections": False,
    "reconnect.backoff.ms": 5,
    "reconnect.backoff.max.ms": 500,
    # If librdkafka bootstraps again while it waits for a coordinator, it waits in vain.
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}

# Errors that no retry can fix, and what the user can do.
REMEDIES: Mapping[int, str] = {
    KafkaError.MSG_SIZE_TOO_LARGE: "write smaller records, or raise max.message.bytes of the topic",
    KafkaError.RECORD_LIST_TOO_LARGE: "write smaller records, or raise segment.bytes of the topic",
    KafkaError.INVALID_RECORD: "a compacted topic accepts only records with a key: declare key=",
    KafkaError._UNKNOWN_PARTITION: "write to partitions that the topic has, or add partitions to it",
    KafkaError.POLICY_VIOLATION: "change the topic's policy, or what is written to it",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "allow this user to write to the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "allow this user the groups that start with the query's name",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "allow this user the transactional ids that start with the query's name"
    ),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "allow this user to write idempotently",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        "lower kafka.transaction.timeout.ms in the output's options,"
        " or raise transaction.max.timeout.ms of the broker"
    ),
    KafkaError._UNSUPPORTED_FEATURE: 'use a broker with transactions, or delivery="at-least-once"',
}

# Errors that may pass; for transactional calls the client itself says if a retry may help.
TRANSIENT = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._WAIT_COORD,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    }
)


def new_producer(client: Mapping[str, Any], transactional_id: str) -> Producer:
    """A producer with that transactional id, which it does not own yet."""
    return Producer({**client, "transactional.id": transactional_id}, logger=SILENCE)


def take_over(producer: Producer, seconds: float) -> None:
    """Become the owner of the transactional id: fence older owners, settle their transaction."""
    retry(producer.init_transactions, seconds)


def connection_settings(client: Mapping[str, Any]) -> dict[str, Any]:
    """Select those of a producer's settings that any client accepts."""
    kept = (
        "bootstrap.servers",
        "security.",
        "sasl.",
        "ssl.",
        "reconnect.",
        "metadata.recovery.",
        "log_level",
    )
    return {name: value for name, value in client.items() if name.startswith(kept)}


def retry(call: Callable[[float], T], seconds: float) -> T:
    """Call until it succeeds, for this long, as long as its errors are transient. It gets its own timeout."""
    deadline = time.monotonic() + seconds
    while True:
        left = deadline - time.monotonic()
        try:
            return call(max(PAUSE_SECONDS, min(CALL_SECONDS, left)))
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            is_transient = cause.retriable() or cause.code() in TRANSIENT
            if cause.fatal() or cause.txn_requires_abort() or not is_transient or left <= 0:
                raise
            time.sleep(PAUSE_SECONDS)


def without_errors(partitions: list[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions of a response; raise the first error in it."""
    for partition in partitions:
        if partition.error is not None:
            raise KafkaException(partition.error)
    return partitions
