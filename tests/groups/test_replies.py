"""Replies are sent when the state is final, because a reply lets in its client's next request at once."""

from typing import TypeVar

import pytest

from millrace.deferred import Deferred
from millrace.errors import Error, KafkaError
from millrace.groups.replies import Replies

from .conftest import NewMember
from .members import Coordinator, Member

R = TypeVar("R")


def committed_already(group_id: str, response: R) -> R:
    return response


def test_a_reply_waits_until_the_state_of_its_group_is_committed() -> None:
    commits: dict[str, Deferred[None]] = {"readers": Deferred(), "writers": Deferred()}

    def settle(group_id: str, response: R) -> Deferred[R]:
        return commits[group_id].convert(lambda _: response)

    replies, parked, other = Replies(settle), Deferred[str](), Deferred[str]()
    with replies:
        replies.add("readers", parked, "done")
        replies.add("writers", other, "done")
    assert not parked.resolved
    commits["readers"].resolve(None)
    assert parked.resolved and parked.result() == "done"
    commits["writers"].fail(KafkaError(Error.NOT_COORDINATOR))
    with pytest.raises(KafkaError):
        other.result()


def test_replies_are_held_back_until_the_end() -> None:
    replies, parked = Replies(committed_already), Deferred[str]()
    with replies:
        replies.add("readers", parked, "done")
        assert not parked.resolved
    assert parked.resolved


def test_replies_that_follow_from_a_reply_are_sent_too() -> None:
    replies, first, second = Replies(committed_already), Deferred[str](), Deferred[str]()

    def next_request(_: str) -> None:
        with replies:
            replies.add("readers", second, "second")

    first.then(next_request)
    with replies:
        replies.add("readers", first, "first")
    assert second.resolved


def test_a_member_may_leave_the_moment_it_hears_that_it_has_joined(
    coordinator: Coordinator, new_member: NewMember
) -> None:
    class Hasty(Member):
        """Its next request waits in the connection behind the one that is parked."""

        def hurry(self) -> None:
            coordinator.group.parked_joins[self.member_id].then(lambda _: self.leave())

    members: list[Member] = [new_member() for _ in range(3)]
    hasty = Hasty(coordinator)
    answers = [member.enter() for member in members]
    hasty.enter()
    hasty.hurry()
    coordinator.advance(6_000)
    assert [answer.error for answer in answers] == [Error.NONE] * 3
    assert hasty.member_id not in coordinator.group.members
    assert coordinator.group.state == "PreparingRebalance"
    coordinator.stabilize(*members)
