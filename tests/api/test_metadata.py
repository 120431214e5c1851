"""Metadata: brokers, topics by name and id, auto-creation."""

import inspect

import pytest

from millrace.api import metadata
from millrace.cluster.image import BrokerImage
from millrace.errors import Error
from millrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from millrace.wire.schema import ZERO_UUID

from ..node import ENDPOINTS, Node, create_topic, finish
from .api import Api
from .conftest import Call

UNKNOWN_ID = bytes(range(16))


def names(response: object) -> list[str]:
    return [topic.name for topic in response.topics]  # type: ignore[attr-defined]


def test_clients_are_sent_to_the_advertised_address(call: Call, api: Api) -> None:
    finish(api.metadata.register(BrokerImage(1, ENDPOINTS, rack="r1")))
    response = call(MetadataRequest(topics=[]))
    (broker,) = response.brokers
    assert (broker.node_id, broker.host, broker.port, broker.rack) == (1, "broker.example", 19092, "r1")
    assert response.controller_id == 1
    assert response.cluster_id == api.image.cluster_id


@pytest.mark.parametrize(
    ("version", "topics", "expected"),
    [(0, [], ["a", "b"]), (1, [], []), (1, None, ["a", "b"]), (12, None, ["a", "b"]), (13, [], [])],
)
def test_all_topics_or_none(
    call: Call, api: Api, version: int, topics: list[MetadataRequestTopic] | None, expected: list[str]
) -> None:
    create_topic(api, "a", 1)
    create_topic(api, "b", 1)
    assert names(call(MetadataRequest(topics=topics), version)) == expected


def test_partitions_are_led_by_this_broker(call: Call, api: Api) -> None:
    topic = create_topic(api, "orders", 2)
    (answer,) = call(MetadataRequest(topics=[MetadataRequestTopic(name="orders")])).topics
    assert answer.topic_id == topic.topic_id
    assert not answer.is_internal
    assert [partition.partition_index for partition in answer.partitions] == [0, 1]
    for partition in answer.partitions:
        assert partition.error_code == Error.NONE
        assert (partition.leader_id, partition.leader_epoch) == (1, 0)
        assert partition.replica_nodes == partition.isr_nodes == [1]
        assert partition.offline_replicas == []


@pytest.mark.parametrize("no_name", [None, ""])
def test_topics_by_id(call: Call, api: Api, no_name: str | None) -> None:
    topic = create_topic(api, "orders", 1)
    response = call(
        MetadataRequest(
            topics=[
                MetadataRequestTopic(name=no_name, topic_id=topic.topic_id),
                MetadataRequestTopic(name=no_name, topic_id=UNKNOWN_ID),
            ]
        )
    )
    found, missing = response.topics
    assert (found.name, found.error_code) == ("orders", Error.NONE)
    assert (missing.name, missing.topic_id, missing.error_code) == (None, UNKNOWN_ID, Error.UNKNOWN_TOPIC_ID)


def test_a_requested_topic_is_created_and_usable_in_the_same_response(call: Call, api: Api) -> None:
    (answer,) = call(MetadataRequest(topics=[MetadataRequestTopic(name="fresh")])).topics
    assert answer.error_code == Error.NONE
    assert answer.topic_id == api.image.topics["fresh"].topic_id
    assert answer.partitions[0].leader_id == 1


def test_auto_creation_can_be_declined_by_the_client(call: Call, api: Api) -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="fresh"), MetadataRequestTopic(name="a/b")],
        allow_auto_topic_creation=False,
    )
    fresh, illegal = call(request).topics
    assert fresh.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert illegal.error_code == Error.INVALID_TOPIC_EXCEPTION
    assert fresh.topic_id == ZERO_UUID
    assert not api.image.topics


def test_auto_creation_can_be_switched_off(node: Node) -> None:
    api = Api(node, {"auto.create.topics.enable": "false"})
    api.api_version = 4
    request = MetadataRequest(topics=[MetadataRequestTopic(name="fresh")])
    response = metadata.handle(api.context(), request)
    assert inspect.iscoroutine(response)
    (answer,) = api.loop.run_until_complete(response).topics
    assert answer.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    api.loop.close()


def test_one_request_creates_no_more_topics_than_one_request_may(call: Call, api: Api) -> None:
    api.config.num_partitions = 5000
    topics = [MetadataRequestTopic(name=f"t{number}") for number in range(3)]
    response = call(MetadataRequest(topics=topics))
    assert {topic.error_code for topic in response.topics} == {Error.UNKNOWN_TOPIC_OR_PARTITION}
    assert not api.image.topics


def test_a_topic_requested_twice_is_answered_once(call: Call, api: Api) -> None:
    create_topic(api, "orders", 1)
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="orders"), MetadataRequestTopic(name="orders")]
    )
    assert names(call(request)) == ["orders"]


def test_authorized_operations_are_included_only_on_request(call: Call, api: Api) -> None:
    create_topic(api, "orders", 1)
    response = call(MetadataRequest(topics=None), 8)
    assert response.cluster_authorized_operations == -(1 << 31)
    assert response.topics[0].topic_authorized_operations == -(1 << 31)
    response = call(
        MetadataRequest(
            topics=None, include_cluster_authorized_operations=True, include_topic_authorized_operations=True
        ),
        8,
    )
    assert response.cluster_authorized_operations > 0
    assert response.topics[0].topic_authorized_operations > 0
