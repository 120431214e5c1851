"""Groups in use that go over to the consumer protocol and back, with members of both kinds in between."""

import pytest

from millrace.errors import Error
from millrace.groups.classic import ClassicGroup
from millrace.groups.consumer_member import MemberState
from millrace.groups.consumer_sessions import Wait

from .classic_consumers import ClassicConsumer, assignment
from .consumers import ASSIGNMENT_INTERVAL_MS, Consumer, cluster_of, group_of, topic_id
from .members import REBALANCE_MS, SESSION_MS, Coordinator, Member

PARTITIONS = 4


@pytest.fixture(autouse=True)
def orders(coordinator: Coordinator) -> None:
    cluster_of(coordinator).create_topic("orders", PARTITIONS)


@pytest.fixture
def classics(coordinator: Coordinator) -> list[ClassicConsumer]:
    """Two consumers of the classic protocol that share the topic."""
    members = [ClassicConsumer(coordinator), ClassicConsumer(coordinator)]
    share_classically(coordinator, *members)
    return members


def share_classically(coordinator: Coordinator, *members: ClassicConsumer) -> None:
    coordinator.join_all(*members)
    shares = [tuple(range(number, PARTITIONS, len(members))) for number in range(len(members))]
    plan = {member.member_id: assignment(*share) for member, share in zip(members, shares, strict=True)}
    answers = [member.sync() for member in members if not member.is_leader]
    (leader,) = (member for member in members if member.is_leader)
    answers.append(leader.sync(plan))
    assert [answer.error for answer in answers] == [Error.NONE] * len(members)
    for member in members:
        member.take()


def go_on(coordinator: Coordinator, *members: Consumer | ClassicConsumer, rounds: int = 15) -> None:
    """Let members of both kinds heartbeat until nothing changes; no partition ever has two owners."""
    for _ in range(rounds):
        coordinator.advance(ASSIGNMENT_INTERVAL_MS)
        for member in members:
            if isinstance(member, Consumer):
                member.beat()
            else:
                member.follow()
            owned = [index for one in members for index in indexes_of(one)]
            assert len(owned) == len(set(owned))
    assert group_of(coordinator).state == "Stable"


def indexes_of(member: Consumer | ClassicConsumer) -> list[int]:
    return member.indexes if isinstance(member, Consumer) else sorted(member.owned)


def test_the_first_member_of_the_new_protocol_turns_the_group(
    coordinator: Coordinator, classics: list[ClassicConsumer]
) -> None:
    generation = coordinator.group.generation
    new = Consumer(coordinator)
    new.join()
    group = group_of(coordinator)
    assert (group.epoch, group.assignment_epoch) == (generation + 1, generation + 1)
    assert set(group.members) == {new.member_id, *(member.member_id for member in classics)}
    assert new.owned == set(), "everything is still with the others"
    go_on(coordinator, new, *classics)
    assert sorted(len(indexes_of(member)) for member in (new, *classics)) == [1, 1, 2]


def test_both_kinds_share_a_group_after_a_restart(
    coordinator: Coordinator, classics: list[ClassicConsumer]
) -> None:
    new = Consumer(coordinator)
    new.join()
    coordinator.restart()
    go_on(coordinator, new, *classics)
    before = dict(group_of(coordinator).members)
    coordinator.restart()
    assert group_of(coordinator).members == before


def test_a_classic_member_is_sent_to_join_for_each_step(
    coordinator: Coordinator, classics: list[ClassicConsumer]
) -> None:
    first, second = classics
    new = Consumer(coordinator)
    new.join()
    assert first.heartbeat() is Error.REBALANCE_IN_PROGRESS
    assert first.sync().error is Error.REBALANCE_IN_PROGRESS
    old_epoch = first.generation
    first.enter()
    known = group_of(coordinator).members[first.member_id]
    if known.state is MemberState.UNREVOKED_PARTITIONS:
        assert first.generation == old_epoch, "it has to give something up first"
    assert first.sync(protocol=("consumer", "range")).error is Error.INCONSISTENT_GROUP_PROTOCOL
    assert first.sync(protocol=("other", None)).error is Error.INCONSISTENT_GROUP_PROTOCOL
    assert second.heartbeat() is Error.REBALANCE_IN_PROGRESS
    first.generation += 7
    assert first.heartbeat() is Error.ILLEGAL_GENERATION
    assert first.sync().error is Error.ILLEGAL_GENERATION


def test_a_new_classic_member_may_join_a_consumer_group(coordinator: Coordinator) -> None:
    new, classic = Consumer(coordinator), ClassicConsumer(coordinator)
    new.join()
    answer = classic.join()
    assert answer.error is Error.MEMBER_ID_REQUIRED
    assert classic.join().error is Error.NONE
    assert (answer.response.leader, classic.is_leader) == ("", False)
    classic.sync()
    go_on(coordinator, new, classic)
    assert len(new.owned) == len(classic.owned) == 2


def test_one_with_other_protocols_may_not(coordinator: Coordinator, classics: list[ClassicConsumer]) -> None:
    Consumer(coordinator).join()
    stranger = Member(coordinator, protocol_type="connect")
    assert stranger.join().error is Error.INCONSISTENT_GROUP_PROTOCOL
    other = Member(coordinator, assignors=("sticky",))
    assert other.join().error is Error.INCONSISTENT_GROUP_PROTOCOL


def test_when_the_last_of_the_new_protocol_has_gone_the_group_turns_back(
    coordinator: Coordinator, classics: list[ClassicConsumer]
) -> None:
    new = Consumer(coordinator)
    new.join()
    go_on(coordinator, new, *classics)
    epoch = group_of(coordinator).epoch
    new.leave()
    group = coordinator.group
    assert isinstance(group, ClassicGroup)
    assert (group.generation, group.state) == (epoch + 1, "PreparingRebalance")
    assert set(group.members) == {member.member_id for member in classics}
    for member in classics:
        for wait in Wait:
            assert (wait, "readers", member.member_id) not in coordinator.timers
        assert member.heartbeat() in (Error.REBALANCE_IN_PROGRESS, Error.ILLEGAL_GENERATION)
    share_classically(coordinator, *classics)
    assert coordinator.group.state == "Stable"
    coordinator.restart()
    assert coordinator.group.state == "Stable"


def test_it_turns_back_also_when_the_last_one_dies(
    coordinator: Coordinator, classics: list[ClassicConsumer]
) -> None:
    new = Consumer(coordinator)
    new.join()
    go_on(coordinator, new, *classics)
    while not isinstance(coordinator.groups.find("readers"), ClassicGroup):
        for member in classics:
            member.follow()
        coordinator.advance(ASSIGNMENT_INTERVAL_MS)
    assert coordinator.group.state == "PreparingRebalance"


@pytest.mark.parametrize("coordinator", [{"group.consumer.migration.policy": "upgrade"}], indirect=True)
def test_a_group_that_should_have_turned_back_does_so_after_a_restart(
    coordinator: Coordinator, classics: list[ClassicConsumer]
) -> None:
    new = Consumer(coordinator)
    new.join()
    go_on(coordinator, new, *classics)
    new.leave()
    assert group_of(coordinator).classic_members == 2, "it must not, or the broker was killed before it did"
    coordinator.restart({"group.consumer.migration.policy": "bidirectional"})
    assert coordinator.group.state == "PreparingRebalance"


def test_classic_members_have_their_own_session_timeouts(
    coordinator: Coordinator, classics: list[ClassicConsumer]
) -> None:
    new = Consumer(coordinator)
    new.join()
    coordinator.advance(SESSION_MS - 1)
    new.beat()
    assert len(group_of(coordinator).members) == 3
    coordinator.advance(1)
    assert list(group_of(coordinator).members) == [new.member_id]


def test_classic_members_have_their_rebalance_timeout_to_join_again(
    coordinator: Coordinator, classics: list[ClassicConsumer]
) -> None:
    new = Consumer(coordinator)
    new.join()
    steady, slow = classics
    go_on_until = REBALANCE_MS // ASSIGNMENT_INTERVAL_MS
    for _ in range(go_on_until + 1):
        new.beat()
        steady.follow()
        slow.heartbeat()
        coordinator.advance(ASSIGNMENT_INTERVAL_MS)
    assert set(group_of(coordinator).members) == {new.member_id, steady.member_id}


def test_a_classic_member_that_never_syncs_is_removed(coordinator: Coordinator) -> None:
    new, classic = Consumer(coordinator), ClassicConsumer(coordinator)
    new.join()
    classic.enter()
    for _ in range(REBALANCE_MS // ASSIGNMENT_INTERVAL_MS):
        new.beat()
        classic.heartbeat()
        coordinator.advance(ASSIGNMENT_INTERVAL_MS)
    assert list(group_of(coordinator).members) == [new.member_id]


def test_members_of_both_kinds_leave(coordinator: Coordinator, classics: list[ClassicConsumer]) -> None:
    first, second = classics
    new = Consumer(coordinator)
    new.join()
    go_on(coordinator, new, *classics)
    assert first.leave() is Error.NONE
    assert first.leave() is Error.UNKNOWN_MEMBER_ID
    assert second.leave() is Error.NONE
    go_on(coordinator, new)
    assert new.indexes == [0, 1, 2, 3]


def test_a_static_member_changes_its_protocol_and_keeps_its_partitions(coordinator: Coordinator) -> None:
    classic = ClassicConsumer(coordinator, instance="one")
    share_classically(coordinator, classic)
    renewed = Consumer(coordinator, instance="one")
    renewed.join()
    assert renewed.indexes == [0, 1, 2, 3]
    assert list(group_of(coordinator).members) == [renewed.member_id]
    assert classic.heartbeat() is Error.FENCED_INSTANCE_ID
    renewed.leave(-2)
    back = ClassicConsumer(coordinator, instance="one")
    assert back.enter().error is Error.NONE
    assert list(coordinator.group.members) == [back.member_id]


def test_a_group_that_is_rebalancing_starts_over(coordinator: Coordinator) -> None:
    waiting = ClassicConsumer(coordinator)
    answer = waiting.enter()
    assert not answer.arrived
    new = Consumer(coordinator)
    new.join()
    assert answer.error is Error.REBALANCE_IN_PROGRESS
    waiting.enter()
    waiting.sync()
    waiting.take()
    go_on(coordinator, new, waiting)
    assert len(new.owned) == len(waiting.owned) == 2


@pytest.mark.parametrize(
    ("coordinator", "text"),
    [
        ({"group.consumer.migration.policy": "disabled"}, "online upgrade is disabled"),
        ({"group.consumer.migration.policy": "downgrade"}, "online upgrade is disabled"),
        ({"group.consumer.max.size": "1"}, "the group size exceeds the consumer group maximum size"),
    ],
    indirect=["coordinator"],
)
def test_a_group_that_may_not_be_turned(
    coordinator: Coordinator, classics: list[ClassicConsumer], text: str
) -> None:
    error = Consumer(coordinator).error(rebalance_timeout_ms=1000, topic_names=["orders"], owned=set())
    assert error.error is Error.GROUP_ID_NOT_FOUND
    assert text in str(error.message)
    assert coordinator.group.state == "Stable"
    assert classics[0].heartbeat() is Error.NONE


def test_user_data_of_a_standard_assignor_is_no_obstacle(coordinator: Coordinator) -> None:
    classic = ClassicConsumer(coordinator)
    coordinator.join_all(classic)
    classic.sync({classic.member_id: assignment(0, 1, 2, 3, user_data=b"generation and owned partitions")})
    new = Consumer(coordinator)
    new.join()
    go_on(coordinator, new, classic)


def test_groups_of_other_types_and_assignors_stay_as_they_are(coordinator: Coordinator) -> None:
    worker = Member(coordinator, protocol_type="connect")
    coordinator.stabilize(worker)
    join = {"rebalance_timeout_ms": 1000, "topic_names": ["orders"], "owned": set()}
    error = Consumer(coordinator).error(**join)
    assert "does not use the consumer embedded protocol" in str(error.message)
    worker.leave()

    member = ClassicConsumer(coordinator, assignor="home-made")
    for content, text in (
        (b"not an assignment at all", "the embedded consumer protocol is malformed"),
        (assignment(0, user_data=b"mine"), "an unsupported custom assignor is in use"),
    ):
        coordinator.join_all(member)
        member.sync({member.member_id: content})
        assert text in str(Consumer(coordinator).error(**join).message)
        member.leave()
        member.member_id = ""


def test_a_partition_that_was_given_twice_is_had_once(coordinator: Coordinator) -> None:
    members = [ClassicConsumer(coordinator), ClassicConsumer(coordinator)]
    coordinator.join_all(*members)
    (leader,) = (member for member in members if member.is_leader)
    plan = {member.member_id: assignment(0, 1, 2, 3) for member in members}
    for member in members:
        member.sync(plan if member is leader else None)
    Consumer(coordinator).join()
    group = group_of(coordinator)
    assert len(group.owners) == PARTITIONS
    assert sorted(len(member.assigned) for member in group.members.values()) == [0, 0, 4]
    assert {topic for topic, _ in group.owners} == {topic_id(coordinator)}
