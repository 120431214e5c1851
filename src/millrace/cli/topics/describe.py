"""`millrace topics --describe`, in the layout of Kafka's tool."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import click

from millrace.admin.configs import ConfigEntry, describe_configs, topic_resource
from millrace.admin.topics import PartitionDescription, TopicDescription, describe_topics
from millrace.client import Client
from millrace.wire.schema import uuid_to_text


@dataclass(frozen=True, slots=True)
class Selection:
    """The options that leave out topics or partitions."""

    topics_with_overrides: bool
    under_replicated_partitions: bool
    unavailable_partitions: bool
    under_min_isr_partitions: bool
    at_min_isr_partitions: bool

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        return cls(**{field.name: options[field.name] for field in fields(cls)})

    @property
    def leaves_out_partitions(self) -> bool:
        return (
            self.under_replicated_partitions
            or self.unavailable_partitions
            or self.under_min_isr_partitions
            or self.at_min_isr_partitions
        )

    def selects(self, partition: PartitionDescription, live_brokers: Collection[int], min_isr: int) -> bool:
        """Whether a partition is printed."""
        return (
            not self.leaves_out_partitions
            or (self.under_replicated_partitions and len(partition.isr) < len(partition.replicas))
            or (self.unavailable_partitions and partition.leader not in live_brokers)
            or (self.under_min_isr_partitions and len(partition.isr) < min_isr)
            or (self.at_min_isr_partitions and len(partition.isr) == min_isr)
        )


async def print_topics(
    client: Client, names: Iterable[str], selection: Selection, partitions_per_response: int
) -> None:
    """Print topics and their partitions, or those of them that the options select."""
    described = await describe_topics(client, names, partitions_per_response=partitions_per_response)
    configs = await describe_configs(client, map(topic_resource, described.all()))
    for name, topic in described.all().items():
        entries = configs[topic_resource(name)]
        overrides = [entry for entry in entries if not entry.is_default]
        if selection.topics_with_overrides:
            if overrides:
                click.echo(_topic_line(topic, overrides))
            continue
        if not selection.leaves_out_partitions:
            click.echo(_topic_line(topic, overrides))
        min_isr = next((int(entry.value or 1) for entry in entries if entry.name == "min.insync.replicas"), 1)
        for partition in topic.partitions:
            if selection.selects(partition, client.cluster.nodes, min_isr):
                click.echo(_partition_line(name, partition))


def _topic_line(topic: TopicDescription, overrides: list[ConfigEntry]) -> str:
    replication_factor = len(topic.partitions[0].replicas) if topic.partitions else 0
    configs = ",".join(f"{entry.name}={entry.value}" for entry in overrides)
    return (
        f"Topic: {click.style(topic.name, bold=True)}\tTopicId: {uuid_to_text(topic.topic_id)}"
        f"\tPartitionCount: {len(topic.partitions)}\tReplicationFactor: {replication_factor}"
        f"\tConfigs: {configs}"
    )


def _partition_line(topic: str, partition: PartitionDescription) -> str:
    leader = "none" if partition.leader is None else str(partition.leader)
    return (
        f"\tTopic: {topic}\tPartition: {partition.index}\tLeader: {leader}"
        f"\tReplicas: {_ids(partition.replicas)}\tIsr: {_ids(partition.isr)}"
        f"\tElr: {_ids(partition.eligible_leaders)}"
        f"\tLastKnownElr: {_ids(partition.last_known_eligible_leaders)}"
    )


def _ids(ids: Iterable[int] | None) -> str:
    return "N/A" if ids is None else ",".join(map(str, ids))
