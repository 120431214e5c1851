"""The other replicas of a partition, as its leader sees them: how far each is, and which ones are in sync."""

from __future__ import annotations

from collections.abc import Collection

from millrace.errors import Error, KafkaError

NOTHING = -1


class Followers:
    """The followers of one leader epoch: a replica that has not fetched in it may lack any record.

    Owned by the broker loop; not thread-safe.
    """

    __slots__ = ("_ends", "_in_sync", "_replicas")

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        self._in_sync: frozenset[int] = frozenset()
        self._replicas: frozenset[int] = frozenset()

    def assign(self, replicas: Collection[int], in_sync: Collection[int]) -> None:
        """Set the other replicas, and those among them whose copy makes a record committed."""
        self._replicas = frozenset(replicas)
        self._in_sync = frozenset(in_sync)
        self._ends = {replica: end for replica, end in self._ends.items() if replica in self._replicas}

    @property
    def replica_count(self) -> int:
        """The number of all replicas, the leader included."""
        return len(self._replicas) + 1

    @property
    def in_sync_count(self) -> int:
        """The number of replicas in sync, the leader included."""
        return len(self._in_sync) + 1

    def record_fetch(self, replica: int, fetch_offset: int) -> None:
        """A replica that fetches from an offset has everything before it."""
        if replica not in self._replicas:
            message = f"Broker {replica} has no replica of the partition."
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER, message)
        self._ends[replica] = fetch_offset

    def end_offset(self, replica: int) -> int:
        """The end of a replica's log; NOTHING until it fetches."""
        return self._ends.get(replica, NOTHING)

    def committed_end(self, log_end_offset: int) -> int:
        """The offset that every in-sync replica has reached."""
        return min((self._ends.get(replica, NOTHING) for replica in self._in_sync), default=log_end_offset)
