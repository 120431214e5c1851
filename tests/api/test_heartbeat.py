"""Heartbeat in all its versions."""

from typing import Any

import pytest

from millrace.errors import Error, KafkaError
from millrace.wire.messages.heartbeat import HeartbeatRequest

from .api import Api
from .members import GROUP, Talk, join_request

ALL = range(5)


def beat(joined: Any, instance: str | None = None) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=GROUP,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=instance,
    )


@pytest.mark.parametrize("version", ALL)
def test_a_member_is_alive(talk: Talk, version: int) -> None:
    joined = talk.enter()
    assert talk(beat(joined), version).error_code == Error.NONE
    talk.assign(joined)
    assert talk(beat(joined), version).error_code == Error.NONE


@pytest.mark.parametrize("version", ALL)
def test_a_member_hears_that_it_must_join_again(talk: Talk, version: int) -> None:
    joined = talk.enter()
    talk.assign(joined)
    talk.send(join_request(member_id=talk.join().member_id), 9)
    assert talk(beat(joined), version).error_code == Error.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("version", ALL)
def test_errors_are_returned(talk: Talk, version: int) -> None:
    joined = talk.enter()
    joined.generation_id = 7
    assert talk(beat(joined), version).error_code == Error.ILLEGAL_GENERATION
    joined.member_id = "stranger"
    assert talk(beat(joined), version).error_code == Error.UNKNOWN_MEMBER_ID
    request = beat(joined)
    request.group_id = ""
    assert talk(request, version).error_code == Error.INVALID_GROUP_ID


@pytest.mark.parametrize("version", range(3, 5))
def test_static_members_are_fenced_from_version_3_on(talk: Talk, version: int) -> None:
    old = talk.join(group_instance_id="one")
    talk.assign(old, instance="one")
    talk.join(group_instance_id="one")
    assert talk(beat(old, "one"), version).error_code == Error.FENCED_INSTANCE_ID


def test_members_of_a_group_that_is_being_loaded_have_no_reason_to_worry(
    talk: Talk, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = talk.enter()

    def loading(key: str) -> None:
        raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS)

    monkeypatch.setattr(api.groups.runtime, "shard_of", loading)
    assert talk(beat(joined), 4).error_code == Error.NONE
    assert talk.join().error_code == Error.COORDINATOR_LOAD_IN_PROGRESS
