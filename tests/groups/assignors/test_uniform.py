"""The uniform assignor: complete, balanced, and no move without a reason."""

from hypothesis import given

from millrace.groups.assignors.spec import MemberSpec, PartitionCounts
from millrace.groups.assignors.uniform import assign

from .groups import Specs, again, check_complete, groups

A, B = b"a" * 16, b"b" * 16


@given(groups())
def test_every_partition_goes_to_one_subscriber(group: tuple[Specs, PartitionCounts]) -> None:
    members, counts = group
    check_complete(members, counts, assign(members, counts))


@given(groups(alike=True))
def test_with_the_same_subscription_loads_differ_by_one_at_most(group: tuple[Specs, PartitionCounts]) -> None:
    members, counts = group
    loads = [len(partitions) for partitions in assign(members, counts).values()]
    assert max(loads) - min(loads) <= 1


@given(groups(alike=False))
def test_no_partition_would_be_better_off_with_another_subscriber(
    group: tuple[Specs, PartitionCounts],
) -> None:
    members, counts = group
    assigned = assign(members, counts)
    for partitions in assigned.values():
        for topic, _ in partitions:
            for other, spec in members.items():
                if topic in spec.topics:
                    assert len(partitions) <= len(assigned[other]) + 1


@given(groups())
def test_an_assignment_that_is_right_stays(group: tuple[Specs, PartitionCounts]) -> None:
    members, counts = group
    assigned = assign(members, counts)
    assert assign(again(members, assigned), counts) == assigned


@given(groups(alike=True))
def test_with_the_same_subscription_only_what_is_too_much_moves(
    group: tuple[Specs, PartitionCounts],
) -> None:
    members, counts = group
    assigned = assign(members, counts)
    total = sum(map(len, assigned.values()))
    share, extras = divmod(total, len(members))
    kept = sum(len(assigned[name] & spec.target) for name, spec in members.items())
    usable = sorted(
        (
            sum(topic in spec.topics and index < counts[topic] for topic, index in spec.target)
            for spec in members.values()
        ),
        reverse=True,
    )
    assert kept == sum(min(load, share + (number < extras)) for number, load in enumerate(usable))


@given(groups(alike=True))
def test_when_a_member_leaves_the_others_keep_what_they_have(group: tuple[Specs, PartitionCounts]) -> None:
    members, counts = group
    assigned = assign(members, counts)
    left = again(members, assigned)
    left.popitem()
    if left:
        after = assign(left, counts)
        assert all(assigned[name] <= after[name] for name in left)


def test_a_new_member_takes_no_more_than_its_share() -> None:
    everything = frozenset((A, index) for index in range(10))
    members = {"old": MemberSpec(frozenset([A]), everything), "new": MemberSpec(frozenset([A]))}
    assigned = assign(members, {A: 10})
    assert (len(assigned["old"]), len(assigned["new"])) == (5, 5)


def test_who_can_have_little_is_balanced_by_who_can_have_all() -> None:
    members = {"both": MemberSpec(frozenset([A, B])), "only-a": MemberSpec(frozenset([A]))}
    assigned = assign(members, {A: 4, B: 4})
    assert assigned["only-a"] == {(A, index) for index in range(4)}
    assert assigned["both"] == {(B, index) for index in range(4)}


def test_no_members_and_no_topics() -> None:
    assert assign({}, {}) == {}
    assert assign({"idle": MemberSpec(frozenset())}, {}) == {"idle": frozenset()}


def test_a_thousand_members_are_provided_for_quickly() -> None:
    members = {f"member-{number:04}": MemberSpec(frozenset([A, B])) for number in range(1000)}
    counts = {A: 3000, B: 2000}
    assigned = assign(members, counts)
    assert {len(partitions) for partitions in assigned.values()} == {5}
    mixed = again(members, assigned)
    mixed["member-0000"] = mixed["member-0000"]._replace(topics=frozenset([A]))
    check_complete(mixed, counts, assign(mixed, counts))
