"""Offsets of topics and consumer groups, asked of the broker."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from millrace.pipelines.errors import PipelineError
from millrace.pipelines.kafka import client
from millrace.pipelines.kafka.client import admin, explained

Offsets = dict[str, dict[int, int]]
"""Offsets by topic and partition."""


def partitions(connection: AdminClient, topics: Iterable[str]) -> dict[str, list[int]]:
    """Return the partitions of each topic; a topic that does not exist has none."""
    wanted = list(topics)
    found = connection.list_topics(timeout=client.REQUEST_SECONDS).topics
    return {topic: sorted(found[topic].partitions) if topic in found else [] for topic in wanted}


def start_offsets(bootstrap: str, topics: Iterable[str]) -> Offsets:
    """Return the oldest offset that each partition still holds."""
    return _offsets(bootstrap, topics, OffsetSpec.earliest())


def end_offsets(bootstrap: str, topics: Iterable[str], *, connection: AdminClient | None = None) -> Offsets:
    """Return the offset that the next record of each partition will get."""
    return _offsets(bootstrap, topics, OffsetSpec.latest(), connection)


def stable_offsets(bootstrap: str, topics: Iterable[str]) -> Offsets:
    """Return the end of each partition for readers of committed records, before any open transaction."""
    return _offsets(bootstrap, topics, OffsetSpec.latest(), isolation=IsolationLevel.READ_COMMITTED)


def offsets_at(bootstrap: str, topics: Iterable[str], time: datetime) -> Offsets:
    """Return the first offset of each partition at or after a time; its end if it has no such record."""
    wanted = list(topics)
    found = _offsets(bootstrap, wanted, OffsetSpec.for_timestamp(int(time.timestamp() * 1000)))
    ends = end_offsets(bootstrap, wanted)
    return {
        topic: {
            partition: ends[topic][partition] if offset < 0 else offset
            for partition, offset in by_partition.items()
        }
        for topic, by_partition in found.items()
    }


def group_offsets(bootstrap: str, group: str, topics: Iterable[str]) -> Offsets:
    """Return the offsets that a group has committed; partitions without a commit are left out."""
    connection = admin(bootstrap)
    with explained(bootstrap):
        wanted = [
            TopicPartition(topic, partition)
            for topic, numbers in partitions(connection, topics).items()
            for partition in numbers
        ]
        request = [ConsumerGroupTopicPartitions(group, wanted)]
        [response] = connection.list_consumer_group_offsets(
            request, request_timeout=client.REQUEST_SECONDS
        ).values()
        committed: Offsets = {}
        for partition in response.result().topic_partitions:
            if partition.error is not None:
                raise KafkaException(partition.error)
            if partition.offset >= 0:
                committed.setdefault(partition.topic, {})[partition.partition] = partition.offset
        return committed


def behind(reached: Mapping[str, Mapping[int, int]], ends: Mapping[str, Mapping[int, int]]) -> int:
    """Count the records between offsets and ends; a partition without an offset counts from 0."""
    return sum(
        max(0, end - reached.get(topic, {}).get(partition, 0))
        for topic, by_partition in ends.items()
        for partition, end in by_partition.items()
    )


def topic_ids(bootstrap: str, topics: Iterable[str]) -> dict[str, str]:
    """Return the id of each topic that exists; a topic that is deleted and recreated gets another id."""
    names = list(topics)
    if not names:
        return {}
    connection = admin(bootstrap)
    with explained(bootstrap):
        found: dict[str, str] = {}
        described = connection.describe_topics(TopicCollection(names), request_timeout=client.REQUEST_SECONDS)
        for topic, response in described.items():
            with suppress(KafkaException):
                found[topic] = str(response.result().topic_id)
        return found


def cluster_id(bootstrap: str) -> str:
    """Return the id of the cluster."""
    with explained(bootstrap):
        # The response never arrives if the client is garbage collected first.
        connection = admin(bootstrap)
        return str(connection.describe_cluster(request_timeout=client.REQUEST_SECONDS).result().cluster_id)


def matching(bootstrap: str, pattern: str) -> list[str]:
    """Return the topics whose whole name matches a pattern."""
    with explained(bootstrap):
        found = admin(bootstrap).list_topics(timeout=client.REQUEST_SECONDS).topics
        return sorted(topic for topic in found if re.fullmatch(pattern, topic))


def parse(offsets: Any) -> Offsets:
    """Parse offsets as Spark writes them: JSON of partitions by topic."""
    parsed = json.loads(offsets) if isinstance(offsets, str) else offsets
    return {
        topic: {int(partition): int(offset) for partition, offset in by_partition.items()}
        for topic, by_partition in (parsed or {}).items()
    }


def no_topic(topic: str, bootstrap: str) -> PipelineError:
    """The error for a topic that does not exist."""
    return PipelineError(
        f"there is no topic {topic} at {bootstrap}; create it with `millrace topics --create --topic {topic}`"
    )


def _offsets(
    bootstrap: str,
    topics: Iterable[str],
    spec: Any,
    connection: AdminClient | None = None,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> Offsets:
    connection = connection or admin(bootstrap)
    with explained(bootstrap):
        found: Offsets = {}
        wanted: dict[TopicPartition, Any] = {}
        for topic, numbers in partitions(connection, topics).items():
            if not numbers:
                raise no_topic(topic, bootstrap)
            wanted |= {TopicPartition(topic, partition): spec for partition in numbers}
        responses = connection.list_offsets(
            wanted, isolation_level=isolation, request_timeout=client.REQUEST_SECONDS
        )
        for partition, response in responses.items():
            found.setdefault(partition.topic, {})[partition.partition] = response.result().offset
        return found
