"""Followers of internal topics, in tests without a network."""

from collections.abc import Iterable

from millrace.replication.partition import Partition

ME, FOLLOWER = 0, 7


def replicate(partitions: Iterable[Partition]) -> None:
    """Let records of led partitions need a follower from now on."""
    for partition in partitions:
        partition.become_leader(partition.leader_epoch, (ME, FOLLOWER), (ME, FOLLOWER), node_id=ME)


def catch_up(partitions: Iterable[Partition]) -> None:
    """Let the follower have everything, which commits it."""
    for partition in partitions:
        partition.record_fetch(FOLLOWER, partition.log.log_end_offset)
