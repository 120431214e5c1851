"""LeaveGroup in all its versions."""

import pytest

from millrace.errors import Error
from millrace.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity

from .api import Api
from .members import GROUP, Talk


def state(api: Api) -> str:
    group = api.groups.find(GROUP)
    assert group is not None
    return group.state


@pytest.mark.parametrize("version", range(3))
def test_a_member_leaves(talk: Talk, version: int) -> None:
    joined = talk.enter()
    talk.assign(joined)
    request = LeaveGroupRequest(group_id=GROUP, member_id=joined.member_id)
    assert talk(request, version).error_code == Error.NONE
    assert state(talk.api) == "Empty"
    assert talk(request, version).error_code == Error.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(3, 6))
def test_several_members_leave_from_version_3_on(talk: Talk, version: int) -> None:
    joined = talk.join(group_instance_id="one")
    talk.assign(joined, instance="one")
    leavers = [
        MemberIdentity(member_id="stranger", reason="none"),
        MemberIdentity(member_id="somebody else", group_instance_id="one"),
        MemberIdentity(member_id="", group_instance_id="one", reason="removed by hand"),
    ]
    answer = talk(LeaveGroupRequest(group_id=GROUP, members=leavers), version)
    assert answer.error_code == Error.NONE
    outcomes = [(member.member_id, member.group_instance_id, member.error_code) for member in answer.members]
    assert outcomes == [
        ("stranger", None, Error.UNKNOWN_MEMBER_ID),
        ("somebody else", "one", Error.FENCED_INSTANCE_ID),
        ("", "one", Error.NONE),
    ]
    assert state(talk.api) == "Empty"


@pytest.mark.parametrize("version", range(6))
def test_leaving_a_missing_group_is_an_error(talk: Talk, version: int) -> None:
    request = LeaveGroupRequest(group_id=GROUP, member_id="a", members=[MemberIdentity(member_id="a")])
    answer = talk(request, version)
    if version < 3:
        assert answer.error_code == Error.UNKNOWN_MEMBER_ID
    else:
        assert answer.error_code == Error.NONE
        assert [member.error_code for member in answer.members] == [Error.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize("version", range(6))
def test_a_group_needs_an_id(talk: Talk, version: int) -> None:
    assert talk(LeaveGroupRequest(group_id=""), version).error_code == Error.INVALID_GROUP_ID
