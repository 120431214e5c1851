"""DescribeGroups in all its versions."""

import pytest

from millrace.errors import Error
from millrace.security import operations
from millrace.security.operations import ResourceType
from millrace.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from millrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

from ..node import create_topic
from .members import GROUP, Talk, join_request

ALL = range(7)


def describe(talk: Talk, version: int, *group_ids: str, **more: bool) -> list[DescribedGroup]:
    groups: list[DescribedGroup] = talk(DescribeGroupsRequest(groups=list(group_ids), **more), version).groups
    return groups


@pytest.mark.parametrize("version", ALL)
def test_a_stable_group_is_shown_with_its_members(talk: Talk, version: int) -> None:
    talk.api.client_id, talk.api.session.client_host = "app", "10.0.0.7"
    joined = talk.join(group_instance_id="one")
    talk.assign(joined, instance="one")
    (group,) = describe(talk, version, GROUP)
    assert (group.error_code, group.group_id, group.group_state) == (Error.NONE, GROUP, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    (member,) = group.members
    assert (member.member_id, member.client_id) == (joined.member_id, "app")
    assert member.client_host == "/10.0.0.7"
    assert member.group_instance_id == ("one" if version >= 4 else None)
    assert member.member_metadata == join_request().protocols[0].metadata
    assert member.member_assignment == b"work"


@pytest.mark.parametrize("version", ALL)
def test_a_group_that_is_not_there_is_dead(talk: Talk, version: int) -> None:
    (group,) = describe(talk, version, "missing")
    assert (group.group_id, group.group_state) == ("missing", "Dead")
    if version < 6:
        assert group.error_code == Error.NONE
    else:
        assert group.error_code == Error.GROUP_ID_NOT_FOUND
        assert group.error_message == "Group missing not found."


@pytest.mark.parametrize("version", ALL)
def test_several_groups_are_described_at_once(talk: Talk, version: int) -> None:
    talk.enter()
    groups = describe(talk, version, "missing", GROUP)
    assert [group.group_state for group in groups] == ["Dead", "CompletingRebalance"]


def test_offsets_without_members_are_an_empty_group(talk: Talk) -> None:
    create_topic(talk.api, "orders", 1)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = OffsetCommitRequestTopic(name="orders", partitions=[partition])
    talk(OffsetCommitRequest(group_id="simple", topics=[topic]), 9)
    (group,) = describe(talk, 6, "simple")
    assert (group.error_code, group.group_state, group.protocol_type) == (Error.NONE, "Empty", "")


def test_authorized_operations_are_included_on_request(talk: Talk) -> None:
    talk.enter()
    (group,) = describe(talk, 6, GROUP)
    assert group.authorized_operations == -(1 << 31)
    (group,) = describe(talk, 6, GROUP, include_authorized_operations=True)
    assert group.authorized_operations == operations.ALL[ResourceType.GROUP]
