"""What both halves of the exactly-once sink know of transactions: their names, their marks, their client.

The transactional id belongs to the task of a query: whoever takes it over fences whoever had it before (a
lost executor, a speculative attempt, an earlier life of the query), and settles what that one left open. Only
then is it looked up how far the task has come.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

Answer = TypeVar("Answer")

TRANSACTION_TIMEOUT_MS = 600_000
CALL_SECONDS = 10.0
PAUSE_SECONDS = 0.05

# Whatever a client has to say comes back as an error, too.
SILENCE = logging.Logger("silence")
SILENCE.disabled = True

PRODUCER_SETTINGS: Mapping[str, Any] = {
    # As Java clients do it, so that a key's records stay together whoever writes them.
    "partitioner": "murmur2_random",
    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
    # What is too large, the broker knows.
    "message.max.bytes": 100_000_000,
    # The queue is kept short by hand: a batch that is half refused would be out of order.
    "queue.buffering.max.messages": 0,
    "queue.buffering.max.kbytes": 2_147_483_647,
    "delivery.report.only.error": True,
    # Connected at once, a producer is ready in 3 ms; else it takes 15 to 500.
    "enable.sparse.connections": False,
    "reconnect.backoff.ms": 5,
    "reconnect.backoff.max.ms": 500,
    # Bootstrapping anew while a coordinator is awaited, librdkafka waits for it in vain.
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}

# What no attempt can mend, and what its user can do about it.
REMEDIES: Mapping[int, str] = {
    KafkaError.MSG_SIZE_TOO_LARGE: "write smaller records, or raise max.message.bytes of the topic",
    KafkaError.RECORD_LIST_TOO_LARGE: "write smaller records, or raise segment.bytes of the topic",
    KafkaError.INVALID_RECORD: "a compacted topic takes only records with a key: declare key=",
    KafkaError._UNKNOWN_PARTITION: "write to partitions that the topic has, or add some to it",
    KafkaError.POLICY_VIOLATION: "change the topic's policy, or what is written to it",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "allow this user to write to the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "allow this user the groups that begin with the query's name",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "allow this user the transactional ids that begin with the query's name"
    ),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "allow this user to write idempotently",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        "lower kafka.transaction.timeout.ms in the output's options,"
        " or raise transaction.max.timeout.ms of the broker"
    ),
    KafkaError._UNSUPPORTED_FEATURE: 'use a broker with transactions, or delivery="at-least-once"',
}


def transactional_id(query: str, task: int) -> str:
    """What fences the attempts of one task of a query from each other."""
    return f"{query}-{task}"


def commits_group(query: str, task: int | str) -> str:
    """The group in which a task keeps how far it has come."""
    return f"{query}.commits.{task}"


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a task has come, as it is kept in its group: the number of the next batch."""

    next_batch: int
    tasks: int
    """How many tasks wrote the batch."""
    checkpoint: str
    """Batches are numbered by a checkpoint; another one begins again at 0."""

    @classmethod
    def of(cls, place: TopicPartition) -> Self | None:
        if place.offset < 0:
            return None
        try:
            facts = json.loads(place.metadata or "{}")
        except ValueError:
            facts = {}
        return cls(place.offset, int(facts.get("tasks", 0)), str(facts.get("checkpoint", "")))

    def at(self, topic: str) -> TopicPartition:
        facts = json.dumps({"tasks": self.tasks, "checkpoint": self.checkpoint})
        return TopicPartition(topic, 0, self.next_batch, facts)

    def covers(self, batch: int, checkpoint: str) -> bool:
        return self.checkpoint == checkpoint and self.next_batch > batch


def new_producer(client: Mapping[str, Any], name: str) -> Producer:
    """A producer of that transactional id, not yet its owner."""
    return Producer({**client, "transactional.id": name}, logger=SILENCE)


def take_over(producer: Producer, seconds: float) -> None:
    """Become the owner of the transactional id: older ones are fenced, their transaction is settled."""
    patiently(producer.init_transactions, seconds)


def connection(client: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a producer's settings that any client takes."""
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


# What may be over in a moment; of transactions, the client says it itself.
PASSING = frozenset(
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


def patiently(step: Callable[[float], Answer], seconds: float) -> Answer:
    """Do something that may take a broker which is away; it is tried again for as long as that can help."""
    deadline = time.monotonic() + seconds
    while True:
        left = deadline - time.monotonic()
        try:
            return step(max(PAUSE_SECONDS, min(CALL_SECONDS, left)))
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            passing = cause.retriable() or cause.code() in PASSING
            if cause.fatal() or cause.txn_requires_abort() or not passing or left <= 0:
                raise
            time.sleep(PAUSE_SECONDS)


def settled(places: list[TopicPartition]) -> list[TopicPartition]:
    """Places that were all answered for."""
    for place in places:
        if place.error is not None:
            raise KafkaException(place.error)
    return places
