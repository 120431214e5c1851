"""Topics, partitions, replicas and reassignments."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from millrace.admin.reassignments import list_reassignments
from millrace.admin.topics import (
    NewPartitions,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    create_partitions,
    create_topics,
    delete_topics,
    existing_topics,
    list_topics,
    wait_for_topics,
)
from millrace.client import TopicPartition
from millrace.rest.errors import error
from millrace.rest.v3.resources import Json, Links, links_of
from millrace.rest.web import body_of, partition_of, proxy
from millrace.services.encoded_path import Route
from millrace.services.errors import Json as Answer


def topic_body(topic: TopicDescription, links: Links) -> Json:
    path = ("topics", topic.name)
    return links.resource(
        "KafkaTopic",
        path,
        {
            "topic_name": topic.name,
            "is_internal": topic.is_internal,
            "replication_factor": len(topic.partitions[0].replicas) if topic.partitions else 0,
            "partitions_count": len(topic.partitions),
            "partitions": links.related(*path, "partitions"),
            "configs": links.related(*path, "configs"),
            "partition_reassignments": links.related(*path, "partitions", "-", "reassignment"),
            "authorized_operations": [],
        },
    )


async def topic_of(request: Request) -> TopicDescription:
    """The topic that the path names. Raises ApiError."""
    name = request.path_params["topic"]
    found = await existing_topics(proxy(request).client, [name])
    if name not in found:
        raise error(40403, "This server does not host this topic-partition.")
    return found[name]


async def list_all(request: Request) -> Response:
    links = await links_of(request)
    topics = await list_topics(proxy(request).client)
    data = [topic_body(topic, links) for topic in topics.values()]
    return Answer(links.collection("KafkaTopicList", ("topics",), data))


async def get(request: Request) -> Response:
    links = await links_of(request)
    return Answer(topic_body(await topic_of(request), links))


async def create(request: Request) -> Response:
    links, body, client = await links_of(request), await body_of(request), proxy(request).client
    name = body.get("topic_name")
    if not isinstance(name, str) or not name:
        raise error(40002, "topic_name is missing")
    configs = body.get("configs") or []
    if not isinstance(configs, list) or not all(
        isinstance(each, dict) and "name" in each for each in configs
    ):
        raise error(40002, "configs is a list of names and values")
    new = NewTopic(
        name,
        partitions=_count(body, "partitions_count"),
        replication_factor=_count(body, "replication_factor"),
        assignments=_assignments(body.get("replicas_assignments") or []),
        configs={str(each["name"]): str(each.get("value", "")) for each in configs},
    )
    validate_only = bool(body.get("validate_only", False))
    (await create_topics(client, [new], validate_only=validate_only)).all()
    if validate_only:
        return Answer({}, 200)
    await wait_for_topics(client, [name])
    topic = (await existing_topics(client, [name]))[name]
    return Answer(topic_body(topic, links), 201, headers={"location": links.url("topics", name)})


def _count(body: Json, name: str) -> int | None:
    value = body.get(name)
    if value is not None and (
        not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 31
    ):
        raise error(40002, f"{name} is not a positive number")
    return value


def _assignments(value: Any) -> list[list[int]]:
    try:
        by_partition = {int(each["partition_id"]): [int(b) for b in each["broker_ids"]] for each in value}
        return [by_partition[index] for index in range(len(by_partition))]
    except (TypeError, KeyError, ValueError):
        raise error(
            40002, "replicas_assignments has partition_id and broker_ids of every partition"
        ) from None


async def extend(request: Request) -> Response:
    """Change the number of partitions."""
    links, body = await links_of(request), await body_of(request)
    topic, count = await topic_of(request), _count(body, "partitions_count")
    if count is None:
        raise error(40002, "partitions_count is missing")
    (await create_partitions(proxy(request).client, {topic.name: NewPartitions(count)})).all()
    return Answer(topic_body(await topic_of(request), links))


async def delete(request: Request) -> Response:
    await links_of(request)
    topic = await topic_of(request)
    (await delete_topics(proxy(request).client, [topic.name])).all()
    return Response(status_code=204)


# Partitions


def _partition_body(topic: TopicDescription, partition: PartitionDescription, links: Links) -> Json:
    path = ("topics", topic.name, "partitions", partition.index)
    return links.resource(
        "KafkaPartition",
        path,
        {
            "topic_name": topic.name,
            "partition_id": partition.index,
            "leader": None
            if partition.leader is None
            else links.related(*path, "replicas", partition.leader),
            "replicas": links.related(*path, "replicas"),
            "reassignment": links.related(*path, "reassignment"),
        },
    )


def _replica_body(
    topic: TopicDescription, partition: PartitionDescription, broker: int, links: Links
) -> Json:
    path = ("topics", topic.name, "partitions", partition.index, "replicas", broker)
    return links.resource(
        "KafkaReplica",
        path,
        {
            "topic_name": topic.name,
            "partition_id": partition.index,
            "broker_id": broker,
            "is_leader": broker == partition.leader,
            "is_in_sync": broker in partition.isr,
            "broker": links.related("brokers", broker),
        },
    )


async def _partition_of(request: Request) -> tuple[TopicDescription, PartitionDescription]:
    topic, index = await topic_of(request), partition_of(request.path_params["partition"])
    for partition in topic.partitions:
        if partition.index == index:
            return topic, partition
    raise error(404, f"Partition {request.path_params['partition'][:20]} cannot be found.")


async def list_partitions(request: Request) -> Response:
    links, topic = await links_of(request), await topic_of(request)
    data = [_partition_body(topic, partition, links) for partition in topic.partitions]
    return Answer(links.collection("KafkaPartitionList", ("topics", topic.name, "partitions"), data))


async def get_partition(request: Request) -> Response:
    links = await links_of(request)
    return Answer(_partition_body(*await _partition_of(request), links))


async def list_replicas(request: Request) -> Response:
    links = await links_of(request)
    topic, partition = await _partition_of(request)
    data = [_replica_body(topic, partition, broker, links) for broker in partition.replicas]
    path = ("topics", topic.name, "partitions", partition.index, "replicas")
    return Answer(links.collection("KafkaReplicaList", path, data))


async def get_replica(request: Request) -> Response:
    links = await links_of(request)
    topic, partition = await _partition_of(request)
    for broker in partition.replicas:
        if str(broker) == request.path_params["broker"]:
            return Answer(_replica_body(topic, partition, broker, links))
    raise error(404, f"Replica {request.path_params['broker'][:20]} cannot be found.")


async def replicas_of_broker(request: Request) -> Response:
    links, wanted = await links_of(request), request.path_params["broker"]
    topics = (await list_topics(proxy(request).client)).values()
    data = [
        _replica_body(topic, partition, broker, links)
        for topic in topics
        for partition in topic.partitions
        for broker in partition.replicas
        if str(broker) == wanted
    ]
    return Answer(links.collection("KafkaReplicaList", ("brokers", wanted, "partition-replicas"), data))


# Reassignments


async def reassignments(request: Request) -> Response:
    """Reassignments under way: of a partition, of a topic, or of all."""
    links, client = await links_of(request), proxy(request).client
    wanted: list[TopicPartition] | None = None
    path: tuple[object, ...] = ("topics", "-", "partitions", "-", "reassignment")
    if "partition" in request.path_params:
        topic, partition = await _partition_of(request)
        wanted = [TopicPartition(topic.name, partition.index)]
        path = ("topics", topic.name, "partitions", partition.index, "reassignment")
    elif "topic" in request.path_params:
        topic = await topic_of(request)
        wanted = topic.topic_partitions
        path = ("topics", topic.name, "partitions", "-", "reassignment")
    found = await list_reassignments(client, wanted)
    data = [
        links.resource(
            "KafkaReassignment",
            ("topics", where.topic, "partitions", where.partition, "reassignment"),
            {
                "topic_name": where.topic,
                "partition_id": where.partition,
                "adding_replicas": list(each.adding),
                "removing_replicas": list(each.removing),
                "replicas": links.related("topics", where.topic, "partitions", where.partition, "replicas"),
            },
        )
        for where, each in found.items()
    ]
    if "partition" not in request.path_params:
        return Answer(links.collection("KafkaReassignmentList", path, data))
    if not data:
        raise error(404, "No reassignment of this partition is under way.")
    return Answer(data[0])


_CLUSTER = "/clusters/{cluster:name}"
_TOPIC = f"{_CLUSTER}/topics/{{topic:name}}"
_PARTITION = f"{_TOPIC}/partitions/{{partition:name}}"
ROUTES = [
    Route(f"{_CLUSTER}/topics", list_all, methods=["GET"]),
    Route(f"{_CLUSTER}/topics", create, methods=["POST"]),
    Route(f"{_CLUSTER}/topics/-/partitions/-/reassignment", reassignments),
    Route(_TOPIC, get, methods=["GET"]),
    Route(_TOPIC, extend, methods=["PATCH"]),
    Route(_TOPIC, delete, methods=["DELETE"]),
    Route(f"{_TOPIC}/partitions", list_partitions),
    Route(f"{_TOPIC}/partitions/-/reassignment", reassignments),
    Route(_PARTITION, get_partition),
    Route(f"{_PARTITION}/reassignment", reassignments),
    Route(f"{_PARTITION}/replicas", list_replicas),
    Route(f"{_PARTITION}/replicas/{{broker:name}}", get_replica),
    Route(f"{_CLUSTER}/brokers/{{broker:name}}/partition-replicas", replicas_of_broker),
]
