"""Replica placement: which brokers hold which partition."""

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence


def place_replicas(
    brokers: Sequence[int],
    partitions: int,
    replication_factor: int,
    first_partition: int = 0,
    racks: Mapping[int, str | None] | None = None,
) -> list[tuple[int, ...]]:
    """Spread partitions evenly, as Kafka does: leaders go round robin, followers shift with each round.

    The round starts at a random broker, so that topics of one partition do not all start at the same one. If
    every broker has a rack, the replicas of a partition are in as many racks as possible.
    """
    known = {broker: rack for broker in brokers if (rack := (racks or {}).get(broker)) is not None}
    if len(known) < len(brokers):
        known = {}
    ordered, count = _alternating(brokers, known) if known else sorted(brokers), len(brokers)
    start, shift = random.randrange(count), random.randrange(count)
    placed = []
    for index in range(first_partition, first_partition + partitions):
        leader = (start + index) % count
        offset = shift + index // count
        others = [
            ordered[(leader + 1 + (offset + number) % (count - 1)) % count] for number in range(count - 1)
        ]
        if known:
            others = _new_racks_first(ordered[leader], others, known)
        placed.append((ordered[leader], *others[: replication_factor - 1]))
    return placed


def _alternating(brokers: Sequence[int], racks: Mapping[int, str]) -> list[int]:
    """The brokers in an order in which neighbours are in different racks, as far as that goes."""
    by_rack: dict[str, list[int]] = defaultdict(list)
    for broker in sorted(brokers):
        by_rack[racks[broker]].append(broker)
    rounds = max(map(len, by_rack.values()))
    ordered = sorted(by_rack)
    return [by_rack[rack][turn] for turn in range(rounds) for rack in ordered if turn < len(by_rack[rack])]


def _new_racks_first(leader: int, others: Sequence[int], racks: Mapping[int, str]) -> list[int]:
    """The other brokers, first one of each rack that has none of the partition's replicas yet."""
    used, first, later = {racks[leader]}, [], []
    for broker in others:
        if racks[broker] in used:
            later.append(broker)
        else:
            used.add(racks[broker])
            first.append(broker)
    return [*first, *later]
