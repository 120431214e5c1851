"""JoinGroup in all its versions."""

import pytest

from millrace.deferred import Deferred
from millrace.errors import Error
from millrace.groups.classic import ClassicGroup

from .api import Api
from .members import GROUP, Talk, join_request

ALL = range(10)


@pytest.mark.parametrize("version", ALL)
def test_the_first_member_leads(talk: Talk, version: int) -> None:
    answer = talk.enter(version)
    assert answer.error_code == Error.NONE
    assert answer.generation_id == 1
    assert answer.leader == answer.member_id
    assert answer.protocol_name == "range"
    assert answer.protocol_type == ("consumer" if version >= 7 else None)
    (member,) = answer.members
    assert member.member_id == answer.member_id
    assert member.metadata == join_request().protocols[0].metadata


@pytest.mark.parametrize("version", ALL)
def test_ids_are_handed_out_first_from_version_4_on(talk: Talk, version: int) -> None:
    talk.api.client_id = "app"
    answer = talk.join(version)
    assert answer.error_code == (Error.MEMBER_ID_REQUIRED if version >= 4 else Error.NONE)
    assert answer.member_id.startswith("app-")


def test_a_client_without_a_name_is_let_in(talk: Talk) -> None:
    talk.api.client_id = None
    answer = talk.enter()
    assert answer.error_code == Error.NONE
    assert answer.member_id.startswith("-")


@pytest.mark.parametrize("version", range(5, 10))
def test_static_members_are_distinguished_from_version_5_on(talk: Talk, version: int) -> None:
    answer = talk.join(version, group_instance_id="one")
    assert answer.member_id.startswith("one-")
    assert answer.members[0].group_instance_id == "one"


def test_before_version_1_the_session_timeout_is_that_of_rebalances(talk: Talk, api: Api) -> None:
    answer = talk.enter(0, session_timeout_ms=12_345)
    group = api.groups.find(GROUP)
    assert group is not None
    assert group.members[answer.member_id].rebalance_timeout_ms == 12_345  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", ALL)
def test_errors_go_back_with_the_members_id(talk: Talk, version: int) -> None:
    answer = talk.join(version, "stranger")
    assert (answer.error_code, answer.member_id) == (Error.UNKNOWN_MEMBER_ID, "stranger")
    answer = talk.join(version, session_timeout_ms=1)
    assert (answer.error_code, answer.member_id) == (Error.INVALID_SESSION_TIMEOUT, "")
    assert answer.generation_id == -1


@pytest.mark.parametrize("version", ALL)
def test_a_group_needs_an_id(talk: Talk, version: int) -> None:
    assert talk.join(version, group_id="").error_code == Error.INVALID_GROUP_ID


def test_the_host_is_written_as_java_writes_it(talk: Talk, api: Api) -> None:
    api.session.client_host = "10.0.0.7"
    talk.enter()
    group = api.groups.find(GROUP)
    assert isinstance(group, ClassicGroup)
    (member,) = group.members.values()
    assert member.client_host == "/10.0.0.7"


def test_a_join_waits_for_the_others(talk: Talk) -> None:
    talk.assign(talk.enter())
    parked = talk.send(join_request(member_id=talk.join().member_id), 9)
    assert isinstance(parked, Deferred)
    assert not parked.resolved


def test_a_restarted_leader_assigns_nothing_from_version_9_on(talk: Talk) -> None:
    first = talk.join(9, group_instance_id="one")
    talk.assign(first, instance="one")
    again = talk.join(9, group_instance_id="one")
    assert again.skip_assignment is True
    older = talk.join(8, group_instance_id="one")
    assert older.leader == again.member_id != older.member_id
