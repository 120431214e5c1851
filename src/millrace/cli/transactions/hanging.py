"""Finds transactions that no coordinator will end: partitions wait for them, and nobody knows of them."""

import time
from typing import NamedTuple

from millrace.cli.client import Client
from millrace.cli.offsets import Place
from millrace.cli.transactions.producers import describe_producers
from millrace.cli.transactions.states import Described, describe_transactions, list_transactions
from millrace.wire.messages.describe_producers import ProducerState
from millrace.wire.messages.list_transactions import ListTransactionsRequest

NO_TRANSACTION = -1


class OpenTransaction(NamedTuple):
    """A producer that has begun a transaction in a partition."""

    place: Place
    producer: ProducerState
    silent_ms: int


def find_hanging(client: Client, brokers: dict[Place, int], max_timeout_ms: int) -> list[OpenTransaction]:
    """The open transactions of partitions that have been silent for too long and that nobody coordinates."""
    candidates = _open_for_long(client, brokers, max_timeout_ms)
    if not candidates:
        return []
    producer_ids = {candidate.producer.producer_id for candidate in candidates}
    listed = list_transactions(client, ListTransactionsRequest(producer_id_filters=sorted(producer_ids)))
    names = {found.transaction.producer_id: found.transaction.transactional_id for found in listed}
    described = describe_transactions(client, names.values())
    return [
        candidate
        for candidate in candidates
        if candidate.place not in _awaiting_an_end(names.get(candidate.producer.producer_id), described)
    ]


def _open_for_long(client: Client, brokers: dict[Place, int], max_timeout_ms: int) -> list[OpenTransaction]:
    now_ms = round(time.time() * 1000)
    return [
        OpenTransaction(place, producer, now_ms - producer.last_timestamp)
        for place, producers in describe_producers(client, brokers).items()
        for producer in producers
        if producer.current_txn_start_offset != NO_TRANSACTION
        and now_ms - producer.last_timestamp > max_timeout_ms
    ]


def _awaiting_an_end(transactional_id: str | None, described: dict[str, Described]) -> set[Place]:
    """The partitions whose transaction a coordinator is going to end."""
    if transactional_id not in described:
        return set()
    topics = described[transactional_id].state.topics
    return {(topic.topic, index) for topic in topics for index in topic.partitions}


def partitions_to_search(
    client: Client, broker_id: int | None, topic: str | None, partition: int | None
) -> dict[Place, int]:
    """The partitions of a topic, of a broker, or of both, each with the broker to ask about it."""
    brokers = {}
    for described in client.metadata(None if topic is None else [topic]).topics:
        for found in described.partitions:
            if partition is not None and found.partition_index != partition:
                continue
            node_id = found.leader_id if broker_id is None else broker_id
            if node_id >= 0 and (broker_id is None or broker_id in found.replica_nodes):
                brokers[described.name or "", found.partition_index] = node_id
    return brokers
