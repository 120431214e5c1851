"""CreatePartitions."""

from millrace.errors import Error
from millrace.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)

from ..node import create_topic
from .api import Api
from .conftest import Call


def test_partitions_are_added(call: Call, api: Api) -> None:
    create_topic(api, "orders", 1)
    asked = CreatePartitionsTopic(name="orders", count=3, assignments=None)
    (result,) = call(CreatePartitionsRequest(topics=[asked])).results
    assert (result.error_code, result.error_message) == (Error.NONE, None)
    assert len(api.partitions.of_topic("orders")) == 3


def test_validating_adds_nothing(call: Call, api: Api) -> None:
    create_topic(api, "orders", 1)
    asked = CreatePartitionsTopic(name="orders", count=3, assignments=None)
    (result,) = call(CreatePartitionsRequest(topics=[asked], validate_only=True)).results
    assert result.error_code == Error.NONE
    assert api.image.topics["orders"].partitions == 1


def test_too_many_partitions_in_one_request_are_refused(call: Call, api: Api) -> None:
    for name in ("a", "b", "c"):
        create_topic(api, name, 1)
    topics = [
        CreatePartitionsTopic(name=name, count=count, assignments=None)
        for name, count in (("a", 6000), ("b", 6000), ("c", 2))
    ]
    response = call(CreatePartitionsRequest(topics=topics, validate_only=True))
    assert [result.error_code for result in response.results] == [
        Error.NONE,
        Error.POLICY_VIOLATION,
        Error.NONE,
    ]


def test_refusals_say_why(call: Call, api: Api) -> None:
    create_topic(api, "orders", 3)
    create_topic(api, "unassigned", 1)
    create_topic(api, "twice", 1)
    response = call(
        CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(name="none", count=3, assignments=None),
                CreatePartitionsTopic(
                    name="orders", count=4, assignments=[CreatePartitionsAssignment(broker_ids=[7])]
                ),
                CreatePartitionsTopic(name="unassigned", count=2, assignments=[]),
                CreatePartitionsTopic(name="twice", count=2, assignments=None),
                CreatePartitionsTopic(name="twice", count=3, assignments=None),
            ]
        )
    )
    assert [(result.name, result.error_code) for result in response.results] == [
        ("none", Error.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", Error.INVALID_REPLICA_ASSIGNMENT),
        ("unassigned", Error.INVALID_REPLICA_ASSIGNMENT),
        ("twice", Error.INVALID_REQUEST),
    ]
    assert "no such broker" in response.results[1].error_message
