"""Groups that assignors are given, and what must be true of whatever they make of them."""

from hypothesis import strategies as st

from millrace.groups.assignors.spec import Assignment, MemberSpec, Partition, PartitionCounts

Specs = dict[str, MemberSpec]


@st.composite
def groups(draw: st.DrawFn, *, alike: bool | None = None) -> tuple[Specs, PartitionCounts]:
    """Members with subscriptions, the same or different ones, and with targets from some earlier time."""
    topics = [bytes([number]) * 16 for number in range(draw(st.integers(1, 4)))]
    counts = {topic: draw(st.integers(1, 9)) for topic in topics}
    names = [f"member-{number}" for number in range(draw(st.integers(1, 7)))]
    everything = frozenset(topics)
    if draw(st.booleans()) if alike is None else alike:
        common = draw(st.frozensets(st.sampled_from(topics)))
        subscriptions = dict.fromkeys(names, common)
    else:
        subscriptions = {name: draw(st.frozensets(st.sampled_from(topics))) for name in names}
    targets: dict[str, set[Partition]] = {name: set() for name in names}
    for topic in sorted(everything):
        # Some of a topic's partitions, and some it no longer has.
        for index in range(counts[topic] + 2):
            owner = draw(st.sampled_from([None, *names]))
            if owner is not None:
                targets[owner].add((topic, index))
    instances = {name: draw(st.sampled_from([None, f"instance-{name}"])) for name in names}
    return {
        name: MemberSpec(subscriptions[name], frozenset(targets[name]), instances[name]) for name in names
    }, counts


def check_complete(members: Specs, counts: PartitionCounts, assigned: Assignment) -> None:
    """Every partition of every subscribed topic has exactly one owner, who is subscribed to it."""
    assert assigned.keys() == members.keys()
    owned = sorted(partition for partitions in assigned.values() for partition in partitions)
    subscribed = frozenset[bytes]().union(*(spec.topics for spec in members.values()))
    assert owned == sorted((topic, index) for topic in subscribed for index in range(counts[topic]))
    for member_id, partitions in assigned.items():
        assert {topic for topic, _ in partitions} <= members[member_id].topics


def again(members: Specs, assigned: Assignment) -> Specs:
    """The same group, after the assignment."""
    return {name: spec._replace(target=assigned[name]) for name, spec in members.items()}
