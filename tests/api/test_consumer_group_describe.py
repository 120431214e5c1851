"""ConsumerGroupDescribe: groups of the consumer protocol, and what is said of others."""

from millrace.errors import Error
from millrace.security.operations import ALL, ResourceType
from millrace.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from millrace.wire.messages.describe_groups import DescribeGroupsRequest
from millrace.wire.messages.list_groups import ListGroupsRequest
from millrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

from ..node import create_topic, delete_topic
from .api import Api
from .conftest import Call
from .test_consumer_group_heartbeat import join


def test_a_group_with_its_members(call: Call, api: Api) -> None:
    topic = create_topic(api, "orders", 2)
    api.client_id, api.session.client_host = "reader", "127.0.0.1"
    call(join(instance_id="one", rack_id="rack", server_assignor="range", subscribed_topic_regex="or.*"))
    request = ConsumerGroupDescribeRequest(group_ids=["readers"], include_authorized_operations=True)
    (group,) = call(request).groups
    assert (group.error_code, group.group_state, group.assignor_name) == (Error.NONE, "Stable", "range")
    assert (group.group_epoch, group.assignment_epoch) == (1, 1)
    assert group.authorized_operations == ALL[ResourceType.GROUP]
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack_id) == ("me", "one", "rack")
    assert (member.client_id, member.client_host) == ("reader", "/127.0.0.1")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["orders"], "or.*")
    assert (member.member_epoch, member.member_type) == (1, 1)
    for assignment in (member.assignment, member.target_assignment):
        (partitions,) = assignment.topic_partitions
        assert (partitions.topic_id, partitions.topic_name) == (topic.topic_id, "orders")
        assert partitions.partitions == [0, 1]


def test_a_member_without_a_pattern_has_an_empty_one(call: Call, api: Api) -> None:
    create_topic(api, "orders", 1)
    call(join())
    (group,) = call(ConsumerGroupDescribeRequest(group_ids=["readers"])).groups
    assert group.members[0].subscribed_topic_regex == ""


def test_a_topic_that_is_gone_is_left_out(call: Call, api: Api) -> None:
    topic = create_topic(api, "orders", 2)
    call(join())
    delete_topic(api, topic)
    (group,) = call(ConsumerGroupDescribeRequest(group_ids=["readers"])).groups
    assert group.members[0].assignment.topic_partitions == []


def test_groups_that_are_not_there_or_of_another_kind(call: Call, api: Api) -> None:
    create_topic(api, "orders", 1)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [OffsetCommitRequestTopic(name="orders", partitions=[partition])]
    call(OffsetCommitRequest(group_id="offsets-only", topics=topics), 9)
    missing, other, nameless = call(
        ConsumerGroupDescribeRequest(group_ids=["missing", "offsets-only", ""])
    ).groups
    assert (missing.error_code, missing.error_message) == (
        Error.GROUP_ID_NOT_FOUND,
        "Group missing not found.",
    )
    assert other.error_message == "Group offsets-only is not a consumer group."
    assert nameless.error_code == Error.INVALID_GROUP_ID


def test_it_is_listed_by_its_type_and_unknown_to_describe_groups(call: Call, api: Api) -> None:
    create_topic(api, "orders", 1)
    call(join())
    (listed,) = call(ListGroupsRequest(types_filter=["Consumer"], states_filter=["stable"])).groups
    assert (listed.group_id, listed.group_type, listed.protocol_type) == ("readers", "consumer", "consumer")
    assert call(ListGroupsRequest(types_filter=["classic"])).groups == []
    (described,) = call(DescribeGroupsRequest(groups=["readers"])).groups
    assert (described.error_code, described.group_state) == (Error.GROUP_ID_NOT_FOUND, "Dead")
    assert described.error_message == "Group readers is not a classic group."
