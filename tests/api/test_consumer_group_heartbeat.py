"""ConsumerGroupHeartbeat in its versions, as dispatch answers it."""

from typing import Any

import pytest

from millrace.errors import Error
from millrace.wire.messages.api_versions import ApiVersionsRequest
from millrace.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

from ..node import create_topic
from .api import Api
from .conftest import Call


def join(**more: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        **{
            "group_id": "readers",
            "member_id": "me",
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": ["orders"],
            "topic_partitions": [],
            **more,
        }
    )


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_joins_and_gets_its_partitions(call: Call, api: Api, version: int) -> None:
    topic = create_topic(api, "orders", 2)
    response = call(join(), version)
    assert (response.error_code, response.member_id, response.member_epoch) == (Error.NONE, "me", 1)
    (assigned,) = response.assignment.topic_partitions
    assert (assigned.topic_id, assigned.partitions) == (topic.topic_id, [0, 1])


def test_only_members_of_version_1_must_have_an_id(call: Call) -> None:
    assert call(join(member_id=""), 1).error_code == Error.INVALID_REQUEST
    assert call(join(member_id=""), 0).member_id


def test_errors_come_with_a_message(call: Call) -> None:
    response = call(join(server_assignor="sticky"))
    assert response.error_code == Error.UNSUPPORTED_ASSIGNOR
    assert "Supported assignors" in response.error_message


def test_clients_learn_that_the_protocol_is_enabled(call: Call) -> None:
    response = call(ApiVersionsRequest(client_software_name="test", client_software_version="1"))
    finalized = {feature.name: feature.max_version_level for feature in response.finalized_features}
    assert finalized["group.version"] == 1
