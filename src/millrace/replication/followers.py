"""The other replicas of a partition, as its leader sees them: how far each is, and which ones are in sync."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from millrace.errors import Error, KafkaError

NOTHING = -1
NO_BROKER_EPOCH = -1
NEVER = float("-inf")


@dataclass(slots=True)
class _Progress:
    """One follower in this leader epoch."""

    end_offset: int = NOTHING
    broker_epoch: int = NO_BROKER_EPOCH
    """The life of the broker that fetches."""
    caught_up_at: float = NEVER
    """The last moment at which it had everything that the leader had."""
    fetched_at: float = NEVER
    leader_end_offset: int = 0
    """The end of the leader's log at the last fetch."""


class Followers:
    """The followers of one leader epoch: a replica that has not fetched in it may lack any record.

    Owned by the broker loop; not thread-safe.
    """

    __slots__ = ("_began_at", "_in_sync", "_progress", "_proposed", "_replicas")

    def __init__(self, began_at: float = 0.0) -> None:
        """`began_at` is the moment from which the lag of replicas counts that have not fetched yet."""
        self._began_at = began_at
        self._progress: dict[int, _Progress] = {}
        self._in_sync: frozenset[int] = frozenset()
        self._replicas: frozenset[int] = frozenset()
        self._proposed: frozenset[int] | None = None

    def assign(self, replicas: Collection[int], in_sync: Collection[int]) -> None:
        """Set the other replicas, and those among them whose copy makes a record committed."""
        self._replicas = frozenset(replicas)
        self._in_sync = frozenset(in_sync)
        self._progress = {
            replica: progress for replica, progress in self._progress.items() if replica in self._replicas
        }

    @property
    def replica_count(self) -> int:
        """The number of all replicas, the leader included."""
        return len(self._replicas) + 1

    @property
    def in_sync_count(self) -> int:
        """The number of replicas known to be in sync, the leader included."""
        return len(self._in_sync) + 1

    @property
    def awaited(self) -> frozenset[int]:
        """The replicas that must have a record before it is committed.

        While the controller has not answered, replicas that a proposal adds count already, and those that it
        removes count still: either may be the truth (KIP-497).
        """
        return self._in_sync if self._proposed is None else self._in_sync | self._proposed

    def record_fetch(
        self,
        replica: int,
        fetch_offset: int,
        *,
        leader_end_offset: int = 0,
        now: float = 0.0,
        broker_epoch: int = NO_BROKER_EPOCH,
    ) -> None:
        """A replica that fetches from an offset has everything before it."""
        if replica not in self._replicas:
            message = f"Broker {replica} has no replica of the partition."
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER, message)
        progress = self._progress.get(replica)
        if progress is None or progress.broker_epoch < broker_epoch:
            progress = self._progress[replica] = _Progress(broker_epoch=broker_epoch)
        elif progress.broker_epoch > broker_epoch:
            raise KafkaError(Error.STALE_BROKER_EPOCH)
        if fetch_offset >= leader_end_offset:
            progress.caught_up_at = now
        elif fetch_offset >= progress.leader_end_offset:
            # It has reached the end of then, although the leader went on.
            progress.caught_up_at = max(progress.caught_up_at, progress.fetched_at)
        progress.end_offset = fetch_offset
        progress.fetched_at, progress.leader_end_offset = now, leader_end_offset

    def end_offset(self, replica: int) -> int:
        """The end of a replica's log; NOTHING until it fetches."""
        progress = self._progress.get(replica)
        return NOTHING if progress is None else progress.end_offset

    def committed_end(self, log_end_offset: int) -> int:
        """The offset that every awaited replica has reached."""
        return min((self.end_offset(replica) for replica in self.awaited), default=log_end_offset)

    # Proposals to the controller

    @property
    def proposed(self) -> frozenset[int] | None:
        """The replicas that the controller was asked to call in sync, if it has not answered yet."""
        return self._proposed

    def propose(self, in_sync: Collection[int]) -> None:
        self._proposed = frozenset(in_sync)

    def withdraw(self) -> None:
        """The proposal is over: refused, or part of the state that is assigned."""
        self._proposed = None

    def wanted(self, *, committed_end: int, epoch_start: int, now: float, max_lag: float) -> frozenset[int]:
        """The replicas that should be in sync: those that keep up, and those that have just caught up.

        To join, a replica needs every committed record, and everything from before this leader's epoch.
        """
        reach = max(committed_end, epoch_start)
        return frozenset(
            replica
            for replica in self._replicas
            if (
                now - self._caught_up_at(replica) <= max_lag
                if replica in self._in_sync
                else self.end_offset(replica) >= reach and now - self._progress[replica].fetched_at <= max_lag
            )
        )

    def _caught_up_at(self, replica: int) -> float:
        progress = self._progress.get(replica)
        return self._began_at if progress is None else max(progress.caught_up_at, self._began_at)

    @property
    def in_sync(self) -> frozenset[int]:
        return self._in_sync

    def broker_epoch(self, replica: int) -> int:
        """The life of the broker whose fetches count."""
        progress = self._progress.get(replica)
        return NO_BROKER_EPOCH if progress is None else progress.broker_epoch
