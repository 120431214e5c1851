"""DescribeTopicPartitions: topics in order, page by page."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millrace.errors import Error
from millrace.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)

from ..node import create_topic
from .api import Api
from .conftest import Call


def pages(call: Call, limit: int, names: tuple[str, ...] = ()) -> list[Any]:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit
    )
    found = []
    while True:
        found.append(call(request))
        request.cursor = found[-1].next_cursor
        if request.cursor is None:
            return found


def listed(page: Any) -> list[tuple[str, int]]:
    return [
        (topic.name, partition.partition_index) for topic in page.topics for partition in topic.partitions
    ]


def test_a_topic_in_full(call: Call, api: Api) -> None:
    topic = create_topic(api, "orders", 1)
    (page,) = pages(call, 2000, ("orders",))
    (answer,) = page.topics
    assert (answer.name, answer.topic_id, answer.is_internal) == ("orders", topic.topic_id, False)
    (partition,) = answer.partitions
    assert (partition.leader_id, partition.leader_epoch) == (1, 0)
    assert partition.replica_nodes == partition.isr_nodes == [1]
    assert partition.eligible_leader_replicas == partition.last_known_elr == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None)
@given(limit=st.integers(1, 9))
def test_pages_give_everything_once_and_in_order(call: Call, api: Api, limit: int) -> None:
    for name, partitions in (("b", 3), ("a", 2), ("c", 4)):
        if name not in api.image.topics:
            create_topic(api, name, partitions)
    found = pages(call, limit)
    assert all(len(listed(page)) <= limit for page in found)
    everything = [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), *(("c", index) for index in range(4))]
    assert [entry for page in found for entry in listed(page)] == everything


def test_unknown_and_illegal_names_are_errors_in_their_place(call: Call, api: Api) -> None:
    create_topic(api, "orders", 1)
    (page,) = pages(call, 2000, ("orders", "none", "a/b"))
    assert [(topic.name, topic.error_code) for topic in page.topics] == [
        ("a/b", Error.INVALID_TOPIC_EXCEPTION),
        ("none", Error.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", Error.NONE),
    ]


def test_the_brokers_limit_counts_too(call: Call, api: Api) -> None:
    api.config.max_request_partition_size_limit = 2
    create_topic(api, "orders", 5)
    assert [len(listed(page)) for page in pages(call, 2000)] == [2, 2, 1]


def test_a_negative_cursor_is_an_error_of_every_topic(call: Call) -> None:
    # The response has no error code of its own to tell it in.
    answer = call(
        DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name="a"), TopicRequest(name="b")],
            cursor=Cursor(topic_name="a", partition_index=-1),
        )
    )
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("a", Error.INVALID_REQUEST),
        ("b", Error.INVALID_REQUEST),
    ]
