"""Clusters and brokers."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from millrace.admin.cluster import ClusterDescription
from millrace.client import Node
from millrace.rest.errors import error
from millrace.rest.v3.resources import Json, Links, cluster_of
from millrace.services.encoded_path import Route
from millrace.services.errors import Json as Answer


def _cluster_body(cluster: ClusterDescription, links: Links) -> Json:
    return links.resource(
        "KafkaCluster",
        (),
        {
            "controller": None
            if cluster.controller_id is None
            else links.related("brokers", cluster.controller_id),
            **{
                name.replace("-", "_"): links.related(name)
                for name in ("acls", "brokers", "broker-configs", "consumer-groups", "topics")
            },
            "partition_reassignments": links.related("topics", "-", "partitions", "-", "reassignment"),
        },
    )


def _broker_body(broker: Node, links: Links) -> Json:
    return links.resource(
        "KafkaBroker",
        ("brokers", broker.id),
        {
            "broker_id": broker.id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "configs": links.related("brokers", broker.id, "configs"),
            "partition_replicas": links.related("brokers", broker.id, "partition-replicas"),
        },
    )


async def list_clusters(request: Request) -> Response:
    cluster, links = await cluster_of(request)
    return Answer(links.clusters([_cluster_body(cluster, links)]))


async def get_cluster(request: Request) -> Response:
    return Answer(_cluster_body(*await cluster_of(request)))


async def list_brokers(request: Request) -> Response:
    cluster, links = await cluster_of(request)
    data = [_broker_body(broker, links) for broker in cluster.brokers]
    return Answer(links.collection("KafkaBrokerList", ("brokers",), data))


async def get_broker(request: Request) -> Response:
    cluster, links = await cluster_of(request)
    for broker in cluster.brokers:
        if str(broker.id) == request.path_params["broker"]:
            return Answer(_broker_body(broker, links))
    raise error(404, f"Broker {request.path_params['broker'][:100]} cannot be found.")


ROUTES = [
    Route("/clusters", list_clusters),
    Route("/clusters/{cluster:name}", get_cluster),
    Route("/clusters/{cluster:name}/brokers", list_brokers),
    Route("/clusters/{cluster:name}/brokers/{broker:name}", get_broker),
]
