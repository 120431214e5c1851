"""The range assignor: runs of partitions, the same run of every topic to the same member."""

from hypothesis import given

from millrace.groups.assignors.range import assign
from millrace.groups.assignors.spec import MemberSpec, PartitionCounts

from .groups import Specs, check_complete, groups

A, B = b"a" * 16, b"b" * 16


@given(groups())
def test_every_partition_goes_to_one_subscriber(group: tuple[Specs, PartitionCounts]) -> None:
    members, counts = group
    check_complete(members, counts, assign(members, counts))


@given(groups())
def test_each_member_gets_a_run_of_each_topic_as_long_as_those_of_the_others(
    group: tuple[Specs, PartitionCounts],
) -> None:
    members, counts = group
    assigned = assign(members, counts)
    for topic in counts:
        runs = [
            sorted(index for owned, index in assigned[name] if owned == topic)
            for name, spec in members.items()
            if topic in spec.topics
        ]
        for run in filter(None, runs):
            assert run == list(range(run[0], run[-1] + 1))
        lengths = [len(run) for run in runs]
        assert not lengths or max(lengths) - min(lengths) <= 1


@given(groups(alike=True))
def test_topics_of_the_same_size_are_cut_at_the_same_places(group: tuple[Specs, PartitionCounts]) -> None:
    members, _ = group
    counts = dict.fromkeys((topic for spec in members.values() for topic in spec.topics), 6)
    for name, partitions in assign(members, counts).items():
        indexes = {
            frozenset(index for owned, index in partitions if owned == topic)
            for topic in members[name].topics
        }
        assert len(indexes) <= 1


def test_static_members_come_first_and_stay_where_they_are() -> None:
    topics = frozenset([A, B])
    members = {
        "a-dynamic": MemberSpec(topics),
        "z-static": MemberSpec(topics, instance_id="one"),
    }
    expected = {(A, 0), (B, 0)}
    counts = {A: 2, B: 2}
    assert assign(members, counts)["z-static"] == expected
    members["b-static"] = members.pop("z-static")
    assert assign(members, counts)["b-static"] == expected
