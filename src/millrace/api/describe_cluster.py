"""DescribeCluster v0-2. v1: brokers or controllers. v2: fenced brokers."""

from __future__ import annotations

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.security.authorizer import CLUSTER
from millrace.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS = 1
_CONTROLLERS = 2


def handle(ctx: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type == _CONTROLLERS:
        raise KafkaError(Error.MISMATCHED_ENDPOINT_TYPE, "This endpoint is a broker, not a controller.")
    if request.endpoint_type != _BROKERS:
        raise KafkaError(
            Error.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}"
        )
    image = ctx.image
    response = DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=image.controller,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
            for broker, endpoint in image.brokers_on(ctx.session.listener.name)
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ctx.authorized_operations(CLUSTER)
    return response
