"""A short request does not become a long response by naming one thing many times."""

from __future__ import annotations

import pytest

from millrace.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from millrace.wire.messages.delete_groups import DeleteGroupsRequest
from millrace.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from millrace.wire.messages.describe_groups import DescribeGroupsRequest
from millrace.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from millrace.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
)
from millrace.wire.messages.describe_topic_partitions import (
    TopicRequest as DescribedTopic,
)
from millrace.wire.messages.describe_transactions import DescribeTransactionsRequest
from millrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from millrace.wire.schema import Request, Struct

from ..node import create_topic
from .api import Api
from .conftest import Call

TOPIC = 2
TWICE = ["orders", "orders"]


@pytest.mark.parametrize(
    "request_",
    [
        ConsumerGroupDescribeRequest(group_ids=TWICE),
        DeleteGroupsRequest(groups_names=TWICE),
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(TOPIC, "orders", None),
                DescribeConfigsResource(TOPIC, "orders", []),
            ]
        ),
        DescribeGroupsRequest(groups=TWICE),
        DescribeProducersRequest(topics=[TopicRequest("orders", [0, 0]), TopicRequest("orders", [0])]),
        DescribeTopicPartitionsRequest(topics=[DescribedTopic(name) for name in TWICE]),
        DescribeTransactionsRequest(transactional_ids=TWICE),
        MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in TWICE]),
    ],
    ids=lambda request: type(request).__name__,
)
def test_a_name_that_is_repeated_is_answered_once(call: Call, api: Api, request_: Request) -> None:
    create_topic(api, "orders", 1)
    assert _deepest_list(call(request_)) == 1


def _deepest_list(response: Struct) -> int:
    """The most structs in one of the lists of the first field that is a list of structs, or within it."""
    for name in ("groups", "results", "transaction_states", "topics"):
        items = getattr(response, name, None)
        if items:
            inner = getattr(items[0], "partitions", [])
            return max(len(items), len(inner))
    raise AssertionError(response)
