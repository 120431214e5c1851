"""Replica placement: which brokers hold which partition."""

import random
from collections.abc import Sequence


def place_replicas(
    brokers: Sequence[int], partitions: int, replication_factor: int, first_partition: int = 0
) -> list[tuple[int, ...]]:
    """Spread partitions evenly, as Kafka does: leaders go round robin, followers shift with each round.

    The round starts at a random broker, so that topics of one partition do not all start at the same one.
    """
    ordered, count = sorted(brokers), len(brokers)
    start, shift = random.randrange(count), random.randrange(count)
    placed = []
    for index in range(first_partition, first_partition + partitions):
        leader = (start + index) % count
        offset = shift + index // count
        followers = (
            ordered[(leader + 1 + (offset + number) % (count - 1)) % count]
            for number in range(replication_factor - 1)
        )
        placed.append((ordered[leader], *followers))
    return placed
