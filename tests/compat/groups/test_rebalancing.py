"""Members of a group share its partitions, and share them again when one joins, leaves or dies."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from millrace.api.context import Context
from millrace.api.dispatch import Handler
from millrace.testing import drop

from .conftest import Groups
from .consumers import SHORT_SESSION, poll_until, read, share

PROCESS = Path(__file__).with_name("member_process.py")
COOPERATIVE = ("confluent", "kafka-python")


def test_one_member_owns_everything(groups: Groups, group: str) -> None:
    topic = groups.topic()
    groups.fill(topic, 40)
    consumer = groups.join(topic, group)
    records = read([consumer], 40)
    assert sorted(int(record.value) for record in records) == list(range(40))
    assert consumer.assignment() == {0, 1, 2, 3}


def test_a_new_member_gets_its_share(groups: Groups, group: str) -> None:
    topic = groups.topic()
    first = groups.join(topic, group)
    poll_until([first], lambda: len(first.assignment()) == 4)
    second = groups.join(topic, group)
    share([first, second], 4)
    groups.fill(topic, 40)
    records = read([first, second], 40)
    assert sorted(int(record.value) for record in records) == list(range(40))


def test_remaining_members_take_over_from_one_that_leaves(groups: Groups, group: str) -> None:
    topic = groups.topic()
    first, second = groups.join(topic, group), groups.join(topic, group)
    share([first, second], 4)
    groups.leave(first)
    poll_until([second], lambda: len(second.assignment()) == 4)
    groups.fill(topic, 20)
    assert len(read([second], 20)) == 20


def test_remaining_members_take_over_from_one_that_dies(groups: Groups, group: str) -> None:
    topic = groups.topic()
    first, second = groups.join(topic, group, **SHORT_SESSION), groups.join(topic, group)
    share([first, second], 4)
    groups.broker.on("LeaveGroup", drop())
    groups.leave(first)
    poll_until([second], lambda: len(second.assignment()) == 4)


def test_a_surplus_member_is_idle(groups: Groups, group: str) -> None:
    topic = groups.topic(partitions=1)
    first, second = groups.join(topic, group), groups.join(topic, group)
    poll_until([first, second], lambda: len(first.assignment() | second.assignment()) == 1)
    owner, idle = (first, second) if first.assignment() else (second, first)
    groups.leave(owner)
    poll_until([idle], lambda: idle.assignment() == {0})


@pytest.mark.parametrize("groups", COOPERATIVE, indirect=True)
def test_partitions_move_without_stopping_the_rest(groups: Groups, group: str) -> None:
    topic = groups.topic()
    settings = {"partition_assignment_strategy": "cooperative-sticky"}
    first = groups.join(topic, group, **settings)
    poll_until([first], lambda: len(first.assignment()) == 4)
    owned: list[set[int]] = []
    second = groups.join(topic, group, **settings)

    def is_divided() -> bool:
        owned.append(first.assignment())
        return len(first.assignment()) == len(second.assignment()) == 2

    poll_until([first, second], is_divided)
    assert first.assignment().isdisjoint(second.assignment())
    assert all(len(part) >= 2 for part in owned), "what it kept was taken away meanwhile"
    groups.leave(second)
    poll_until([first], lambda: len(first.assignment()) == 4)


def test_a_static_member_comes_back_to_its_partitions(groups: Groups, group: str) -> None:
    topic = groups.topic()
    members = [groups.join(topic, group, group_instance_id=name) for name in ("one", "two")]
    share(members, 4)
    before = members[0].assignment()
    groups.leave(members[0])
    joins: list[str] = []

    def note(ctx: Context, handler: Handler, request: Any) -> Any:
        joins.append(request.group_instance_id)
        return handler.handle(ctx, request)

    groups.broker.on("JoinGroup", note)
    again = groups.join(topic, group, group_instance_id="one")
    poll_until([again, members[1]], lambda: again.assignment() == before)
    assert joins == ["one"], "the group was rebalanced"


def test_a_killed_process_is_detected(groups: Groups, group: str) -> None:
    topic = groups.topic()
    command = [sys.executable, str(PROCESS), groups.client, groups.broker.bootstrap, topic, group]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"joined\n"
        process.kill()
    heir = groups.join(topic, group)
    poll_until([heir], lambda: len(heir.assignment()) == 4)
