"""SyncGroup in all its versions."""

import pytest

from millrace.errors import Error

from .members import GROUP, Talk, sync_request

ALL = range(6)


@pytest.mark.parametrize("version", ALL)
def test_the_leader_assigns(talk: Talk, version: int) -> None:
    answer = talk.assign(talk.enter(), version)
    assert (answer.error_code, answer.assignment) == (Error.NONE, b"work")
    named = ("consumer", "range") if version >= 5 else (None, None)
    assert (answer.protocol_type, answer.protocol_name) == named


@pytest.mark.parametrize("version", ALL)
def test_a_repeated_sync_gets_the_same_assignment(talk: Talk, version: int) -> None:
    joined = talk.enter()
    talk.assign(joined)
    assert talk(sync_request(joined, {}), version).assignment == b"work"


@pytest.mark.parametrize("version", ALL)
def test_errors_are_returned(talk: Talk, version: int) -> None:
    joined = talk.enter()
    joined.generation_id = 7
    assert talk.assign(joined, version).error_code == Error.ILLEGAL_GENERATION
    joined.member_id = "stranger"
    answer = talk.assign(joined, version)
    assert (answer.error_code, answer.assignment) == (Error.UNKNOWN_MEMBER_ID, b"")


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_from_version_5_on_the_protocol_must_be_named(talk: Talk, missing: str) -> None:
    request = sync_request(talk.enter(), {})
    setattr(request, missing, None)
    assert talk(request, 5).error_code == Error.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", range(3, 6))
def test_static_members_are_fenced_from_version_3_on(talk: Talk, version: int) -> None:
    old = talk.join(group_instance_id="one")
    talk.assign(old, instance="one")
    talk.join(group_instance_id="one")
    assert talk(sync_request(old, {}, "one"), version).error_code == Error.FENCED_INSTANCE_ID


def test_the_group_must_exist(talk: Talk) -> None:
    joined = talk.enter()
    request = sync_request(joined, {})
    request.group_id = GROUP + " of others"
    assert talk(request, 5).error_code == Error.UNKNOWN_MEMBER_ID
    request.group_id = ""
    assert talk(request, 5).error_code == Error.INVALID_GROUP_ID
