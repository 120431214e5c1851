"""CreateTopics: what is created, what is answered, what is refused."""

import pytest

from millrace.cluster.configs import ConfigSource
from millrace.errors import Error
from millrace.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from millrace.wire.schema import ZERO_UUID

from .api import Api
from .conftest import Call


def test_the_answer_tells_id_layout_and_configs(call: Call, api: Api) -> None:
    asked = CreatableTopic(
        name="orders",
        num_partitions=3,
        replication_factor=1,
        configs=[CreatableTopicConfig(name="retention.ms", value="1000")],
    )
    (result,) = call(CreateTopicsRequest(topics=[asked])).topics
    assert result.error_code == Error.NONE
    assert result.error_message is None
    assert result.topic_id == api.image.topics["orders"].topic_id
    assert (result.num_partitions, result.replication_factor) == (3, 1)
    configs = {config.name: (config.value, config.config_source) for config in result.configs}
    assert configs["retention.ms"] == ("1000", ConfigSource.DYNAMIC_TOPIC)
    assert configs["segment.bytes"] == ("1073741824", ConfigSource.DEFAULT)
    assert len(configs) == 33


def test_one_refused_topic_does_not_hold_up_the_others(call: Call, api: Api) -> None:
    response = call(
        CreateTopicsRequest(
            topics=[
                CreatableTopic(name="good", num_partitions=1, replication_factor=1),
                CreatableTopic(name="a/b", num_partitions=1, replication_factor=1),
                CreatableTopic(name="wide", num_partitions=1, replication_factor=3),
                CreatableTopic(name="none", num_partitions=0, replication_factor=1),
                CreatableTopic(
                    name="odd",
                    num_partitions=1,
                    replication_factor=1,
                    configs=[CreatableTopicConfig(name="nope", value="1")],
                ),
                CreatableTopic(
                    name="null",
                    num_partitions=1,
                    replication_factor=1,
                    configs=[CreatableTopicConfig(name="retention.ms", value=None)],
                ),
            ]
        )
    )
    assert [(result.name, result.error_code) for result in response.topics] == [
        ("good", Error.NONE),
        ("a/b", Error.INVALID_TOPIC_EXCEPTION),
        ("wide", Error.INVALID_REPLICATION_FACTOR),
        ("none", Error.INVALID_PARTITIONS),
        ("odd", Error.INVALID_CONFIG),
        ("null", Error.INVALID_CONFIG),
    ]
    assert "only 1 broker(s) are registered" in response.topics[2].error_message
    assert all(refused.configs == [] for refused in response.topics[1:])
    assert list(api.image.topics) == ["good"]


def test_validating_creates_nothing(call: Call, api: Api) -> None:
    asked = CreatableTopic(name="orders", num_partitions=-1, replication_factor=-1)
    (result,) = call(CreateTopicsRequest(topics=[asked], validate_only=True)).topics
    assert (result.error_code, result.num_partitions, result.topic_id) == (Error.NONE, 1, ZERO_UUID)
    assert not api.image.topics


def test_a_name_given_twice_is_refused(call: Call, api: Api) -> None:
    asked = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
    (result,) = call(CreateTopicsRequest(topics=[asked, asked])).topics
    assert result.error_code == Error.INVALID_REQUEST
    assert not api.image.topics


def test_too_many_partitions_in_one_request_are_refused(call: Call, api: Api) -> None:
    def create(*counts: int, validate_only: bool) -> list[tuple[Error, str | None]]:
        topics = [
            CreatableTopic(name=f"t{number}", num_partitions=count, replication_factor=1)
            for number, count in enumerate(counts)
        ]
        results = call(CreateTopicsRequest(topics=topics, validate_only=validate_only)).topics
        return [(Error(result.error_code), result.error_message) for result in results]

    refused = (Error.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    for validate_only in (True, False):
        assert create(5000, 5000, 1, validate_only=validate_only) == [refused] * 3
        # One without a number gets the default.
        assert create(10_000, -1, validate_only=validate_only) == [refused] * 2
    assert not api.image.topics
    assert create(5000, 5000, validate_only=True) == [(Error.NONE, None)] * 2


def test_a_name_given_twice_does_not_count_as_partitions(call: Call) -> None:
    topics = [
        CreatableTopic(name=name, num_partitions=6000, replication_factor=1) for name in ("a", "a", "b")
    ]
    results = call(CreateTopicsRequest(topics=topics, validate_only=True)).topics
    assert {result.name: result.error_code for result in results} == {"a": Error.INVALID_REQUEST, "b": 0}


@pytest.mark.parametrize(
    ("assignments", "error"),
    [
        ([(0, [1]), (1, [1])], Error.NONE),
        ([(0, [1]), (0, [1])], Error.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [2])], Error.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_assignments(call: Call, assignments: list[tuple[int, list[int]]], error: Error) -> None:
    asked = CreatableTopic(
        name="orders",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in assignments
        ],
    )
    (result,) = call(CreateTopicsRequest(topics=[asked])).topics
    assert result.error_code == error
