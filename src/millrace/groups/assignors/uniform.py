"""The uniform assignor: all members get the same number of partitions, and keep those that they have.

Balance comes first and stickiness second: a partition moves only from a member that has more than its share.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import islice

from millrace.groups.assignors.spec import Assignment, Members, Partition, PartitionCounts

Holdings = dict[str, list[Partition]]


def assign(members: Members, counts: PartitionCounts) -> Assignment:
    if not members:
        return {}
    held: Holdings = {member_id: _kept(members, member_id, counts) for member_id in sorted(members)}
    if len({spec.topics for spec in members.values()}) == 1:
        topics = next(iter(members.values())).topics
        _share_out(held, _free_partitions(held, topics, counts))
    else:
        _assign_unlike(held, members, counts)
    return {member_id: frozenset(partitions) for member_id, partitions in held.items()}


def _kept(members: Members, member_id: str, counts: PartitionCounts) -> list[Partition]:
    """The partitions that a member had and may keep."""
    topics, target, _ = members[member_id]
    return sorted((topic, index) for topic, index in target if topic in topics and index < counts[topic])


def _free_partitions(held: Holdings, topics: frozenset[bytes], counts: PartitionCounts) -> list[Partition]:
    taken = {partition for partitions in held.values() for partition in partitions}
    every = ((topic, index) for topic in sorted(topics) for index in range(counts[topic]))
    return [partition for partition in every if partition not in taken]


def _share_out(held: Holdings, free: list[Partition]) -> None:
    """When all may have everything, each has its share, or one more where it doesn't come out even."""
    total = len(free) + sum(map(len, held.values()))
    share, extras = divmod(total, len(held))
    for partitions in held.values():
        limit = share
        if extras and len(partitions) > share:
            # Members that have more than a share already keep one more.
            limit, extras = share + 1, extras - 1
        free += partitions[limit:]
        del partitions[limit:]
    rest = iter(free)
    for partitions in held.values():
        wanted = share - len(partitions)
        if extras and wanted >= 0:
            wanted, extras = wanted + 1, extras - 1
        partitions += islice(rest, max(wanted, 0))


def _assign_unlike(held: Holdings, members: Members, counts: PartitionCounts) -> None:
    """With different subscriptions: fill up the least loaded, then move partitions while it helps."""
    subscribers: dict[bytes, list[str]] = {}
    for member_id in held:
        for topic in members[member_id].topics:
            subscribers.setdefault(topic, []).append(member_id)
    # The fewer can have a partition, the sooner it is given away.
    topics = sorted(subscribers, key=lambda topic: (len(subscribers[topic]), -counts[topic], topic))
    taken = {partition for partitions in held.values() for partition in partitions}
    for topic in topics:
        free = [(topic, index) for index in range(counts[topic]) if (topic, index) not in taken]
        _fill(held, subscribers[topic], free)
    moved = True
    while moved:
        moved = False
        for topic in topics:
            moved |= _level(held, topic, subscribers[topic])


def _fill(held: Holdings, subscribers: list[str], free: list[Partition]) -> None:
    if not free:
        return
    loads = [(len(held[member_id]), member_id) for member_id in subscribers]
    heapify(loads)
    for partition in free:
        load, member_id = heappop(loads)
        held[member_id].append(partition)
        heappush(loads, (load + 1, member_id))


def _level(held: Holdings, topic: bytes, subscribers: list[str]) -> bool:
    """Move partitions of a topic from its most to its least loaded subscribers; whether any moved.

    Each move brings two members closer together, so that going round the topics comes to an end.
    """
    lightest = min(len(held[member_id]) for member_id in subscribers)
    heavy = [
        (-len(held[member_id]), member_id)
        for member_id in subscribers
        if len(held[member_id]) > lightest + 1 and _holds(held, member_id, topic)
    ]
    if not heavy:
        return False
    heapify(heavy)
    light = [(len(held[member_id]), member_id) for member_id in subscribers]
    heapify(light)
    while heavy:
        load, giver = -heavy[0][0], heavy[0][1]
        least, taker = light[0]
        if least != len(held[taker]):
            # It has given or taken since it was put here.
            heappop(light)
            heappush(light, (len(held[taker]), taker))
            continue
        if load <= least + 1:
            break
        heappop(heavy)
        _move(held, topic, giver, taker)
        if _holds(held, giver, topic):
            heappush(heavy, (1 - load, giver))
        heappop(light)
        heappush(light, (least + 1, taker))
    return True


def _holds(held: Holdings, member_id: str, topic: bytes) -> bool:
    return any(partition[0] == topic for partition in held[member_id])


def _move(held: Holdings, topic: bytes, giver: str, taker: str) -> None:
    partition = max(partition for partition in held[giver] if partition[0] == topic)
    held[giver].remove(partition)
    held[taker].append(partition)
