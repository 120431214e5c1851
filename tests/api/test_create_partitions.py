"""CreatePartitions."""

from millrace.api.context import Context
from millrace.errors import Error
from millrace.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)

from ..node import create_topic
from .conftest import Call


def test_partitions_are_added(call: Call, ctx: Context) -> None:
    create_topic(ctx, "orders", 1)
    asked = CreatePartitionsTopic(name="orders", count=3, assignments=None)
    (result,) = call(CreatePartitionsRequest(topics=[asked])).results
    assert (result.error_code, result.error_message) == (Error.NONE, None)
    assert len(ctx.partitions.of_topic("orders")) == 3


def test_validating_adds_nothing(call: Call, ctx: Context) -> None:
    create_topic(ctx, "orders", 1)
    asked = CreatePartitionsTopic(name="orders", count=3, assignments=None)
    (result,) = call(CreatePartitionsRequest(topics=[asked], validate_only=True)).results
    assert result.error_code == Error.NONE
    assert ctx.image.topics["orders"].partitions == 1


def test_too_many_partitions_in_one_request_are_refused(call: Call, ctx: Context) -> None:
    for name in ("a", "b", "c"):
        create_topic(ctx, name, 1)
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


def test_refusals_say_why(call: Call, ctx: Context) -> None:
    create_topic(ctx, "orders", 3)
    create_topic(ctx, "unassigned", 1)
    create_topic(ctx, "twice", 1)
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
