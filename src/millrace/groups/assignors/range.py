"""The range assignor: of each topic, every subscriber gets a run of neighbouring partitions.

Topics with the same number of partitions and subscribers are cut at the same places, so that partitions of
the same index, which hold the same keys when topics are to be joined, go to the same member.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.groups.assignors.spec import Assignment, Members, MemberSpec, Partition, PartitionCounts


def assign(members: Members, counts: PartitionCounts) -> Assignment:
    subscribers: dict[bytes, list[str]] = {}
    for member_id, spec in sorted(members.items(), key=_rank):
        for topic in spec.topics:
            subscribers.setdefault(topic, []).append(member_id)
    assigned: dict[str, list[Partition]] = {member_id: [] for member_id in members}
    for topic, topic_members in subscribers.items():
        for member_id, run in zip(topic_members, _cut(counts[topic], len(topic_members)), strict=True):
            assigned[member_id] += ((topic, index) for index in run)
    return {member_id: frozenset(partitions) for member_id, partitions in assigned.items()}


def _rank(member: tuple[str, MemberSpec]) -> tuple[bool, str]:
    """Static members come first, by the id that outlives a restart."""
    member_id, spec = member
    return (True, member_id) if spec.instance_id is None else (False, spec.instance_id)


def _cut(partitions: int, pieces: int) -> Iterator[range]:
    """Runs whose lengths differ by one at most, the longer ones first."""
    length, longer = divmod(partitions, pieces)
    begin = 0
    for piece in range(pieces):
        end = begin + length + (piece < longer)
        yield range(begin, end)
        begin = end
