"""DeleteTopics by name and by id."""

from millrace.errors import Error
from millrace.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

from ..node import create_topic
from .api import Api
from .conftest import Call


def test_topics_are_deleted_by_name(call: Call, api: Api) -> None:
    create_topic(api, "orders", 1)
    create_topic(api, "kept", 1)
    response = call(DeleteTopicsRequest(topic_names=["orders", "none"]), version=5)
    assert [(result.name, result.error_code) for result in response.responses] == [
        ("orders", Error.NONE),
        ("none", Error.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert list(api.image.topics) == ["kept"]


def test_topics_are_deleted_by_id(call: Call, api: Api) -> None:
    topic = create_topic(api, "orders", 1)
    unknown = bytes(range(16))
    response = call(
        DeleteTopicsRequest(
            topics=[DeleteTopicState(topic_id=topic.topic_id), DeleteTopicState(topic_id=unknown)]
        )
    )
    deleted, missing = response.responses
    assert (deleted.name, deleted.topic_id, deleted.error_code) == ("orders", topic.topic_id, Error.NONE)
    assert (missing.name, missing.topic_id, missing.error_code) == (None, unknown, Error.UNKNOWN_TOPIC_ID)
    assert not api.image.topics


def test_a_topic_named_twice_or_in_two_ways_is_kept(call: Call, api: Api) -> None:
    topic = create_topic(api, "orders", 1)
    twice = DeleteTopicsRequest(topics=[DeleteTopicState(name="orders"), DeleteTopicState(name="orders")])
    assert [result.error_code for result in call(twice).responses] == [Error.INVALID_REQUEST]
    both = DeleteTopicsRequest(topics=[DeleteTopicState(name="orders", topic_id=topic.topic_id)])
    assert [result.error_code for result in call(both).responses] == [Error.INVALID_REQUEST]
    apart = DeleteTopicsRequest(
        topics=[DeleteTopicState(name="orders"), DeleteTopicState(topic_id=topic.topic_id)]
    )
    assert [result.error_code for result in call(apart).responses] == [Error.INVALID_REQUEST]
    neither = DeleteTopicsRequest(topics=[DeleteTopicState(name=None)])
    assert [result.error_code for result in call(neither).responses] == [Error.INVALID_REQUEST]
    assert list(api.image.topics) == ["orders"]
    assert list(api.image.topics) == ["orders"]
