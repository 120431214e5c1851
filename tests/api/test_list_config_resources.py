"""ListConfigResources."""

from millrace.cluster.resources import ResourceType
from millrace.errors import Error
from millrace.wire.messages.list_config_resources import ListConfigResourcesRequest

from ..node import create_topic
from .api import Api
from .conftest import Call


def test_resources_by_type(call: Call, api: Api) -> None:
    create_topic(api, "orders", 1)
    response = call(ListConfigResourcesRequest(resource_types=[ResourceType.TOPIC]))
    assert [(found.resource_name, found.resource_type) for found in response.config_resources] == [
        ("orders", ResourceType.TOPIC)
    ]
    everything = call(ListConfigResourcesRequest(resource_types=[]))
    assert {found.resource_type for found in everything.config_resources} == {
        ResourceType.TOPIC,
        ResourceType.BROKER,
        ResourceType.BROKER_LOGGER,
    }


def test_version_0_knows_client_metrics_only(call: Call, api: Api) -> None:
    create_topic(api, "orders", 1)
    assert call(ListConfigResourcesRequest(), version=0).config_resources == []


def test_an_unknown_type_is_refused(call: Call) -> None:
    assert call(ListConfigResourcesRequest(resource_types=[99])).error_code == Error.UNSUPPORTED_VERSION
