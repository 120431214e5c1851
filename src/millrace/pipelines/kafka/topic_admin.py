"""Creates and deletes the topics and groups that pipelines keep for themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, ConfigSource, NewTopic, ResourceType

from millrace.pipelines.errors import PipelineError
from millrace.pipelines.kafka import client, offsets
from millrace.pipelines.kafka.client import admin

COMPACTED = {"cleanup.policy": "compact"}


def exists(topic: str, bootstrap: str) -> bool:
    """Whether the topic exists."""
    return bool(offsets.matching(bootstrap, re.escape(topic)))


def ensure(
    topic: str, bootstrap: str, *, partitions: int = 1, config: Mapping[str, str] | None = None
) -> None:
    """Create a topic unless it exists."""
    if exists(topic, bootstrap):
        return
    new = NewTopic(topic, num_partitions=partitions, replication_factor=-1, config=dict(config or {}))
    connection = admin(bootstrap)
    try:
        connection.create_topics([new], request_timeout=client.REQUEST_SECONDS)[topic].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise PipelineError(
                f"cannot create the topic {topic}: {error.args[0].str()}; create it yourself and try again"
            ) from error


def ensure_like(topic: str, model: str, bootstrap: str) -> None:
    """Create a topic with the partitions and configs of another one, if that exists."""
    connection = admin(bootstrap)
    count = len(offsets.partitions(connection, [model])[model])
    config: dict[str, str] = {}
    if count:
        resource = ConfigResource(ResourceType.TOPIC, model)
        described = connection.describe_configs([resource], request_timeout=client.REQUEST_SECONDS)
        set_on_topic = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        config = {
            name: entry.value
            for name, entry in described[resource].result().items()
            if entry.source == set_on_topic
        }
    ensure(topic, bootstrap, partitions=count or -1, config=config)


def delete(topics: Iterable[str], bootstrap: str) -> None:
    """Delete those of the topics that exist, and wait until they are gone."""
    existing = [topic for topic in topics if exists(topic, bootstrap)]
    if existing:
        connection = admin(bootstrap)
        deleted = connection.delete_topics(existing, operation_timeout=client.REQUEST_SECONDS)
        for response in deleted.values():
            response.result()


def delete_groups(queries: Iterable[str], bootstrap: str) -> None:
    """Delete the groups that hold the progress of queries, and those of their transactions."""
    connection = admin(bootstrap)
    names = tuple(queries)
    listed = connection.list_consumer_groups(request_timeout=client.REQUEST_SECONDS).result().valid
    commits = tuple(f"{name}.commits." for name in names)
    groups = [
        group.group_id for group in listed if group.group_id in names or group.group_id.startswith(commits)
    ]
    if groups:
        deleted = connection.delete_consumer_groups(groups, request_timeout=client.REQUEST_SECONDS)
        for response in deleted.values():
            response.result()
