"""The controller's rules for one partition."""

import pytest

from millrace.cluster import leadership
from millrace.cluster.image import NO_LEADER, PartitionState
from millrace.cluster.leadership import Electorate
from millrace.errors import Error, KafkaError

LIFE = 100
STATE = PartitionState((1, 2, 3), 1, 5, (1, 2, 3), partition_epoch=7, leader_broker_epoch=LIFE)


def electorate(
    *live: int, stopping: tuple[int, ...] = (), min_isr: int = 1, unclean: bool = False
) -> Electorate:
    return Electorate(dict.fromkeys(live, LIFE), stopping, min_isr, unclean)


def alter(
    state: PartitionState, in_sync: dict[int, int], voters: Electorate, **changes: int
) -> PartitionState:
    known = {"leader": 1, "leader_epoch": state.leader_epoch, "partition_epoch": state.partition_epoch}
    return leadership.altered(state, voters, in_sync=in_sync, **(known | changes))


def test_a_healthy_partition_stays_as_it_is() -> None:
    assert leadership.settled(STATE, electorate(1, 2, 3)) is STATE


def test_the_first_live_replica_in_sync_replaces_a_dead_leader() -> None:
    settled = leadership.settled(STATE, electorate(3, 2))
    assert (settled.leader, settled.leader_epoch, settled.isr) == (2, 6, (2, 3))
    assert settled.partition_epoch == 8


def test_a_dead_follower_leaves_the_isr_without_a_new_epoch() -> None:
    settled = leadership.settled(STATE, electorate(1, 3))
    assert (settled.leader, settled.leader_epoch, settled.isr) == (1, 5, (1, 3))


def test_the_last_replicas_in_sync_stay_electable_although_dead() -> None:
    settled = leadership.settled(STATE._replace(isr=(1,)), electorate(2, 3))
    assert (settled.leader, settled.isr) == (NO_LEADER, (1,))
    assert leadership.settled(settled, electorate(1, 2, 3)).leader == 1


def test_an_unclean_election_is_a_choice_of_the_topic() -> None:
    settled = leadership.settled(STATE._replace(isr=(1,)), electorate(2, 3, unclean=True))
    assert (settled.leader, settled.isr, settled.eligible) == (2, (2,), ())


def test_replicas_that_leave_below_min_isr_stay_eligible() -> None:
    alone = leadership.settled(STATE._replace(isr=(1, 2)), electorate(1, 3, min_isr=2))
    assert (alone.isr, alone.eligible) == ((1,), (2,))
    replaced = leadership.settled(alone, electorate(2, 3, min_isr=2))
    assert (replaced.leader, replaced.isr, replaced.eligible) == (2, (2,), (1,))


def test_a_leader_that_was_restarted_is_elected_again() -> None:
    settled = leadership.settled(STATE._replace(isr=(1,)), Electorate({1: LIFE + 1, 2: LIFE}))
    assert (settled.leader, settled.leader_epoch) == (1, 6)


def test_a_follower_that_was_restarted_has_to_catch_up_again() -> None:
    voters = Electorate({1: LIFE, 2: LIFE + 1, 3: LIFE})
    assert leadership.settled_after(STATE, voters, [2]).isr == (1, 3)


def test_a_stopping_leader_hands_over_unless_it_is_the_only_one() -> None:
    settled = leadership.settled(STATE, electorate(1, 2, 3, stopping=(1,)))
    assert (settled.leader, settled.isr) == (2, (2, 3))
    only = STATE._replace(isr=(1,))
    assert leadership.settled(only, electorate(1, 2, stopping=(1,))) == only


@pytest.mark.parametrize(
    ("changes", "in_sync", "refusal"),
    [
        ({"leader_epoch": 6}, {1: LIFE}, Error.NOT_CONTROLLER),
        ({"leader_epoch": 4}, {1: LIFE}, Error.FENCED_LEADER_EPOCH),
        ({"leader": 2}, {2: LIFE}, Error.FENCED_LEADER_EPOCH),
        ({"partition_epoch": 6}, {1: LIFE}, Error.INVALID_UPDATE_VERSION),
        ({}, {2: LIFE}, Error.INVALID_REQUEST),
        ({}, {1: LIFE, 9: LIFE}, Error.INVALID_REQUEST),
    ],
)
def test_a_leader_with_other_epochs_is_refused(
    changes: dict[str, int], in_sync: dict[int, int], refusal: Error
) -> None:
    with pytest.raises(KafkaError) as raised:
        alter(STATE, in_sync, electorate(1, 2, 3), **changes)
    assert raised.value.error is refusal


def test_a_change_that_is_sent_twice_succeeds_twice() -> None:
    shrunk = alter(STATE, {1: LIFE, 2: LIFE}, electorate(1, 2, 3))
    assert alter(shrunk, {1: LIFE, 2: LIFE}, electorate(1, 2, 3), partition_epoch=7) is shrunk


def test_fetches_of_a_former_life_do_not_let_a_replica_join() -> None:
    with pytest.raises(KafkaError) as raised:
        alter(STATE._replace(isr=(1,)), {1: LIFE, 2: LIFE - 1}, electorate(1, 2, 3))
    assert raised.value.error is Error.INELIGIBLE_REPLICA


def test_a_reassignment_waits_for_the_new_replicas_and_then_drops_the_old() -> None:
    voters = electorate(1, 2, 3, 4)
    moving = leadership.reassigning(STATE, (4, 2), voters)
    assert (moving.replicas, moving.adding, moving.removing) == ((4, 2, 1, 3), (4,), (1, 3))
    moved = alter(moving, dict.fromkeys((1, 2, 3, 4), LIFE), voters)
    assert (moved.replicas, moved.isr, moved.leader) == ((4, 2), (4, 2), 4)
    assert (moved.adding, moved.removing) == ((), ())
    assert (moved.leader_epoch, moved.partition_epoch) == (6, moving.partition_epoch + 1)


def test_a_reassignment_is_cancelled_by_another_one_to_the_replicas_of_before() -> None:
    moving = leadership.reassigning(STATE, (4, 2), electorate(1, 2, 3, 4))
    back = leadership.reassigning(moving, leadership.original_replicas(moving), electorate(1, 2, 3, 4))
    assert (set(back.replicas), back.adding, back.removing) == ({1, 2, 3}, (), ())


def test_the_preferred_leader_takes_over_when_it_is_in_sync() -> None:
    state = STATE._replace(leader=2)
    assert leadership.preferred(state, electorate(1, 2)).leader == 1
    assert leadership.preferred(state._replace(isr=(2,)), electorate(1, 2)).leader == 2
