"""`millrace topics --describe`, in the layout of Kafka's tool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from millrace.cli.client import Client
from millrace.cli.config_entries import ConfigEntry, describe_configs, topic_resource
from millrace.cli.errors import check
from millrace.wire.messages import describe_topic_partitions as api
from millrace.wire.messages.metadata import MetadataResponseTopic
from millrace.wire.schema import uuid_to_text

if TYPE_CHECKING:
    from millrace.cli.topics import Wanted


@dataclass(frozen=True, slots=True)
class PartitionState:
    """What is printed of one partition; None where the broker does not tell."""

    index: int
    leader_id: int
    replicas: list[int]
    isr: list[int]
    eligible_leaders: list[int] | None = None
    last_known_eligible_leaders: list[int] | None = None

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)

    def line(self, topic: str) -> str:
        leader = str(self.leader_id) if self.leader_id >= 0 else "none"
        return (
            f"\tTopic: {topic}\tPartition: {self.index}\tLeader: {leader}\tReplicas: {_ids(self.replicas)}"
            f"\tIsr: {_ids(self.isr)}\tElr: {_ids(self.eligible_leaders)}"
            f"\tLastKnownElr: {_ids(self.last_known_eligible_leaders)}"
        )


def _ids(ids: Iterable[int] | None) -> str:
    return "N/A" if ids is None else ",".join(map(str, ids))


def describe_topics(client: Client, topics: dict[str, MetadataResponseTopic], wanted: Wanted) -> None:
    """Print topics and their partitions, or those of them that the options leave."""
    if not topics:
        return
    live_brokers = {broker.node_id for broker in client.metadata([]).brokers}
    configs = describe_configs(client, [topic_resource(name) for name in topics])
    only_some_partitions = (
        wanted.under_replicated_partitions
        or wanted.unavailable_partitions
        or wanted.under_min_isr_partitions
        or wanted.at_min_isr_partitions
    )
    for name, partitions in _partitions(client, topics, wanted.partition_size_limit_per_response):
        settings = [entry for entry in configs[name] if not entry.is_default]
        if wanted.topics_with_overrides:
            if settings:
                click.echo(_header(name, topics[name].topic_id, partitions, settings))
            continue
        if not only_some_partitions:
            click.echo(_header(name, topics[name].topic_id, partitions, settings))
        for partition in partitions:
            if not only_some_partitions or _is_wanted(partition, wanted, live_brokers, configs[name]):
                click.echo(partition.line(name))


def _partitions(
    client: Client, topics: dict[str, MetadataResponseTopic], limit: int
) -> Iterator[tuple[str, list[PartitionState]]]:
    """Every topic's partitions in order; from Metadata where the broker has no better request."""
    described = _describe_partitions(client, list(topics), limit)
    for name, topic in topics.items():
        if described is not None:
            partitions = described.get(name, [])
        else:
            partitions = [
                PartitionState(item.partition_index, item.leader_id, item.replica_nodes, item.isr_nodes)
                for item in topic.partitions
            ]
        yield name, sorted(partitions, key=lambda partition: partition.index)


def _describe_partitions(
    client: Client, names: list[str], limit: int
) -> dict[str, list[PartitionState]] | None:
    if not client.bootstrap.offers(api.DescribeTopicPartitionsRequest):
        return None
    described: dict[str, list[PartitionState]] = {}
    request = api.DescribeTopicPartitionsRequest(
        topics=[api.TopicRequest(name=name) for name in names], response_partition_limit=limit
    )
    while True:
        response = client.send(request, api.DescribeTopicPartitionsResponse)
        for topic in response.topics:
            check(topic.error_code)
            described.setdefault(topic.name or "", []).extend(map(_state, topic.partitions))
        if response.next_cursor is None:
            return described
        request.cursor = response.next_cursor


def _state(partition: api.DescribeTopicPartitionsResponsePartition) -> PartitionState:
    return PartitionState(
        partition.partition_index,
        partition.leader_id,
        partition.replica_nodes,
        partition.isr_nodes,
        partition.eligible_leader_replicas,
        partition.last_known_elr,
    )


def _header(name: str, topic_id: bytes, partitions: list[PartitionState], settings: list[ConfigEntry]) -> str:
    replication_factor = len(partitions[0].replicas) if partitions else 0
    configs = ",".join(f"{entry.name}={entry.value}" for entry in settings)
    return (
        f"Topic: {click.style(name, bold=True)}\tTopicId: {uuid_to_text(topic_id)}"
        f"\tPartitionCount: {len(partitions)}\tReplicationFactor: {replication_factor}\tConfigs: {configs}"
    )


def _is_wanted(
    partition: PartitionState, wanted: Wanted, live_brokers: set[int], configs: list[ConfigEntry]
) -> bool:
    min_isr = next((int(entry.value or 1) for entry in configs if entry.name == "min.insync.replicas"), 1)
    return (
        (wanted.under_replicated_partitions and partition.is_under_replicated)
        or (wanted.unavailable_partitions and partition.leader_id not in live_brokers)
        or (wanted.under_min_isr_partitions and len(partition.isr) < min_isr)
        or (wanted.at_min_isr_partitions and len(partition.isr) == min_isr)
    )
