"""What brokers tell of the producers that write to partitions."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from millrace.cli.client import Client
from millrace.cli.errors import CommandError, check
from millrace.cli.offsets import Place
from millrace.errors import Error
from millrace.wire.messages import describe_producers as api

# Brokers hold many partitions; each request asks for a part of them.
PARTITIONS_PER_REQUEST = 500


def leader_of(client: Client, place: Place) -> int:
    """The broker that leads a partition."""
    topic, index = place
    for described in client.metadata([topic]).topics:
        if described.error_code != Error.UNKNOWN_TOPIC_OR_PARTITION:
            check(described.error_code)
        for partition in described.partitions:
            if partition.partition_index == index and partition.leader_id >= 0:
                return partition.leader_id
    raise CommandError(f"there is no partition {topic}-{index}, or it has no leader")


def describe_producers(client: Client, brokers: Mapping[Place, int]) -> dict[Place, list[api.ProducerState]]:
    """The active producers of each partition, as its given broker knows them."""
    by_broker: dict[int, list[Place]] = defaultdict(list)
    for place, node_id in brokers.items():
        by_broker[node_id].append(place)
    producers = {}
    for node_id, places in by_broker.items():
        for start in range(0, len(places), PARTITIONS_PER_REQUEST):
            request = _request(places[start : start + PARTITIONS_PER_REQUEST])
            for topic in client.broker(node_id).send(request, api.DescribeProducersResponse).topics:
                for partition in topic.partitions:
                    check(partition.error_code, partition.error_message)
                    producers[topic.name, partition.partition_index] = partition.active_producers
    return producers


def _request(places: Iterable[Place]) -> api.DescribeProducersRequest:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, index in places:
        by_topic[topic].append(index)
    return api.DescribeProducersRequest(
        topics=[api.TopicRequest(name=name, partition_indexes=indexes) for name, indexes in by_topic.items()]
    )
