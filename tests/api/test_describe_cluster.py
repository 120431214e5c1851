"""DescribeCluster."""

from millrace.errors import Error
from millrace.wire.messages.describe_cluster import DescribeClusterRequest

from .api import Api
from .conftest import Call


def test_the_broker_is_the_cluster(call: Call, api: Api) -> None:
    response = call(DescribeClusterRequest())
    assert (response.cluster_id, response.controller_id) == (api.image.cluster_id, 1)
    (broker,) = response.brokers
    assert (broker.broker_id, broker.host, broker.port) == (1, "broker.example", 19092)
    assert not broker.is_fenced
    assert response.cluster_authorized_operations == -(1 << 31)


def test_authorized_operations_on_demand(call: Call) -> None:
    response = call(DescribeClusterRequest(include_cluster_authorized_operations=True), version=0)
    assert response.cluster_authorized_operations > 0


def test_there_are_no_controllers_to_describe(call: Call) -> None:
    assert call(DescribeClusterRequest(endpoint_type=2)).error_code == Error.MISMATCHED_ENDPOINT_TYPE
    assert call(DescribeClusterRequest(endpoint_type=9)).error_code == Error.UNSUPPORTED_ENDPOINT_TYPE
