"""Topics, partitions and brokers."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from millrace.admin.cluster import describe_cluster
from millrace.admin.configs import describe_configs, topic_resource
from millrace.admin.offsets import EARLIEST, LATEST, list_offsets
from millrace.admin.topics import PartitionDescription, TopicDescription, existing_topics, list_topics
from millrace.client import TopicPartition
from millrace.rest.errors import partition_not_found, topic_not_found
from millrace.rest.v2.answers import Answer
from millrace.rest.web import partition_of, proxy
from millrace.services.encoded_path import Route


async def described_topic(request: Request) -> TopicDescription:
    """The topic that the path names. Raises ApiError."""
    name = request.path_params["topic"]
    found = await existing_topics(proxy(request).client, [name])
    if name not in found:
        raise topic_not_found(name)
    return found[name]


def partition_body(partition: PartitionDescription) -> dict[str, Any]:
    return {
        "partition": partition.index,
        "leader": -1 if partition.leader is None else partition.leader,
        "replicas": [
            {"broker": node, "leader": node == partition.leader, "in_sync": node in partition.isr}
            for node in partition.replicas
        ],
    }


async def get_topics(request: Request) -> Response:
    topics = await list_topics(proxy(request).client)
    return Answer([name for name, topic in topics.items() if not topic.is_internal])


async def get_topic(request: Request) -> Response:
    topic = await described_topic(request)
    resource = topic_resource(topic.name)
    entries = (await describe_configs(proxy(request).client, [resource]))[resource]
    return Answer(
        {
            "name": topic.name,
            "configs": {entry.name: entry.value for entry in entries if entry.value is not None},
            "partitions": [partition_body(partition) for partition in topic.partitions],
        }
    )


async def get_partitions(request: Request) -> Response:
    topic = await described_topic(request)
    return Answer([partition_body(partition) for partition in topic.partitions])


async def described_partition(request: Request) -> tuple[TopicDescription, PartitionDescription]:
    """The partition that the path names. Raises ApiError."""
    topic, index = await described_topic(request), partition_of(request.path_params["partition"])
    for partition in topic.partitions:
        if partition.index == index:
            return topic, partition
    raise partition_not_found(request.path_params["partition"][:20])


async def get_partition(request: Request) -> Response:
    return Answer(partition_body((await described_partition(request))[1]))


async def get_offsets(request: Request) -> Response:
    topic, partition = await described_partition(request)
    where, client = TopicPartition(topic.name, partition.index), proxy(request).client
    first = (await list_offsets(client, {where: EARLIEST}))[where]
    last = (await list_offsets(client, {where: LATEST}))[where]
    return Answer({"beginning_offset": first.offset, "end_offset": last.offset})


async def get_brokers(request: Request) -> Response:
    return Answer({"brokers": (await describe_cluster(proxy(request).client)).broker_ids})


ROUTES = [
    Route("/topics", get_topics),
    Route("/topics/{topic:name}", get_topic),
    Route("/topics/{topic:name}/partitions", get_partitions),
    Route("/topics/{topic:name}/partitions/{partition:name}", get_partition),
    Route("/topics/{topic:name}/partitions/{partition:name}/offsets", get_offsets),
    Route("/brokers", get_brokers),
]
