"""A partition as its clients and its other replicas see it: one log that this broker leads or follows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple

from millrace.config import LogConfig
from millrace.deferred import Deferred
from millrace.errors import Error, KafkaError
from millrace.replication.followers import NO_BROKER_EPOCH, Followers
from millrace.replication.waiting import CommitWaits, ParkedFetch
from millrace.storage.append_origin import AppendOrigin
from millrace.storage.inspection import Inspect, inspect
from millrace.storage.log import Appended, Log
from millrace.wire.control_batch import END_MARKER_BYTES

UNKNOWN_LEADER_EPOCH = -1
NO_LEADER = -1


class Role(Enum):
    OFFLINE = auto()
    """Neither leads nor follows: it was not told yet, or its files are being removed."""
    LEADER = auto()
    FOLLOWER = auto()


_LEADER = Role.LEADER


class _Uncommitted(NamedTuple):
    """A batch that some in-sync replica may lack."""

    end_offset: int
    size: int
    is_marker: bool


class IsrProposal(NamedTuple):
    """The followers that a leader wants to be in sync, with the broker epochs that it knows."""

    leader_epoch: int
    partition_epoch: int
    followers: dict[int, int]


class Partition:
    """Owned by the broker loop; not thread-safe.

    The high watermark is the end of the committed records. While the leader is the only replica that counts,
    it is the log's end, and costs nothing to keep.
    """

    __slots__ = (
        "_commits",
        "_epoch_start",
        "_followers",
        "_uncommitted",
        "index",
        "is_replicated",
        "lacks_replicas",
        "leader",
        "leader_epoch",
        "log",
        "on_caught_up",
        "on_marker",
        "parked",
        "partition_epoch",
        "role",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: bytes, index: int, log: Log) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_epoch = 0
        self.partition_epoch = 0
        """The version of the state that this broker acts on."""
        self.leader = NO_LEADER
        """The broker that leads the partition."""
        self.lacks_replicas = False
        """Whether fewer replicas are in sync than min.insync.replicas asks."""
        self.is_replicated = False
        """Whether a record is committed only when other replicas have it."""
        self.parked: set[ParkedFetch] = set()
        self.on_marker: Callable[[int, int, bool], object] | None = None
        """Called for each transaction that ends here: producer id, epoch, whether it committed."""
        self.on_caught_up: Callable[[Partition], object] | None = None
        """Called when a replica that is not in sync has everything that is committed."""
        self.role = Role.OFFLINE
        self._followers = Followers()
        self._epoch_start = 0
        """The end of the log when this broker began to lead."""
        self._commits = CommitWaits()
        self._uncommitted: deque[_Uncommitted] = deque()

    def __repr__(self) -> str:
        return f"Partition({self.topic}-{self.index})"

    # Leading and following

    def become_leader(
        self,
        leader_epoch: int,
        replicas: Collection[int],
        isr: Collection[int],
        *,
        node_id: int,
        partition_epoch: int = 0,
        now: float = 0.0,
    ) -> None:
        """Lead in an epoch, or go on leading with other replicas in sync; node_id is this broker's id.

        `isr` holds the replicas that must have a record before it is committed.
        """
        if self.role is not _LEADER or leader_epoch != self.leader_epoch:
            self._followers = Followers(now)
            self._epoch_start = self.log.log_end_offset
        elif partition_epoch < self.partition_epoch:
            return
        elif partition_epoch > self.partition_epoch:
            # Whatever was proposed on the state before is either part of this one or refused.
            self._followers.withdraw()
        self.partition_epoch = partition_epoch
        self.role = Role.LEADER
        self.leader = node_id
        self.leader_epoch = leader_epoch
        self._followers.assign(_others(replicas, node_id), _others(isr, node_id))
        self._count_replicas()

    def become_follower(self, leader_epoch: int, leader: int) -> None:
        """Follow another broker in an epoch."""
        self._stop_leading()
        self.role = Role.FOLLOWER
        self.leader = leader
        self.leader_epoch = leader_epoch

    def resign(self) -> None:
        """Neither lead nor follow any more."""
        self._stop_leading()
        self.role = Role.OFFLINE
        self.leader = NO_LEADER

    def _stop_leading(self) -> None:
        """Answer the requests that wait here: their clients find the new leader."""
        self.lacks_replicas = False
        if not self.is_replicated:
            self._track_commits()
        self._commits.fail(Error.NOT_LEADER_OR_FOLLOWER)
        self.wake()

    def reconfigure(self, config: LogConfig) -> None:
        """Take over the topic's configuration."""
        self.log.config = config
        if self.role is Role.LEADER:
            self._count_replicas()

    def _count_replicas(self) -> None:
        """Compare the replicas in sync with min.insync.replicas, which asks for no more than there are."""
        followers = self._followers
        needed = min(self.log.config.min_insync_replicas, followers.replica_count)
        self.lacks_replicas = followers.in_sync_count < needed
        if not followers.awaited and not self.lacks_replicas:
            self._commit_up_to(self.log.log_end_offset)
            self.is_replicated = False
            self.log.set_high_watermark(None)
        else:
            if not self.is_replicated:
                self._track_commits()
            self._advance_high_watermark()

    def _track_commits(self) -> None:
        """Begin to keep a high watermark of its own: the one known so far, or the log's end."""
        log = self.log
        log.set_high_watermark(log.high_watermark)
        self.is_replicated = True
        self._uncommitted.clear()
        if log.high_watermark < log.log_end_offset:
            # The log was just opened. Its uncommitted batches count as one.
            self._uncommitted.append(_Uncommitted(log.log_end_offset, log.size, True))

    # The high watermark

    @property
    def high_watermark(self) -> int:
        """End of the committed records, which is as far as consumers may read."""
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """End of the records whose transactions have a committed end: the limit of `read_committed`."""
        return self.log.last_stable_offset

    def record_fetch(
        self, replica: int, fetch_offset: int, *, now: float = 0.0, broker_epoch: int = NO_BROKER_EPOCH
    ) -> None:
        """A follower has everything before the offset that it fetches from."""
        self._check_leads()
        self._followers.record_fetch(
            replica,
            fetch_offset,
            leader_end_offset=self.log.log_end_offset,
            now=now,
            broker_epoch=broker_epoch,
        )
        if self.is_replicated:
            self._advance_high_watermark()
        if (
            self.on_caught_up is not None
            and fetch_offset >= self.log.high_watermark
            and replica not in self._followers.awaited
        ):
            self.on_caught_up(self)

    def committed(self, end_offset: int) -> Deferred[None]:
        """Resolves when every record before an offset is committed.

        Fails with NOT_LEADER_OR_FOLLOWER if this broker stops leading: the next leader may or may not have
        the records.
        """
        if end_offset <= self.log.high_watermark:
            return Deferred.of(None)
        return self._commits.add(end_offset)

    # The replicas in sync

    def propose_isr(
        self, now: float, max_lag: float, may_join: Callable[[int, int], bool]
    ) -> IsrProposal | None:
        """The change of the replicas in sync that the controller has to be asked for, if any.

        `may_join` says of a broker and its epoch whether the controller would let it join. One proposal at a
        time: until it is answered, the replicas of both states count.
        """
        followers = self._followers
        if self.role is not _LEADER or followers.proposed is not None:
            return None
        wanted = followers.wanted(
            committed_end=self.high_watermark, epoch_start=self._epoch_start, now=now, max_lag=max_lag
        )
        in_sync = followers.in_sync
        wanted = frozenset(
            replica
            for replica in wanted
            if replica in in_sync or may_join(replica, followers.broker_epoch(replica))
        )
        if wanted == in_sync:
            return None
        followers.propose(wanted)
        self._count_replicas()
        return self.pending_isr

    @property
    def pending_isr(self) -> IsrProposal | None:
        """The proposal that the controller has not answered yet."""
        followers = self._followers
        if self.role is not _LEADER or followers.proposed is None:
            return None
        epochs = {replica: followers.broker_epoch(replica) for replica in followers.proposed}
        return IsrProposal(self.leader_epoch, self.partition_epoch, epochs)

    def withdraw_isr(self, proposal: IsrProposal) -> None:
        """The controller has refused a proposal: the state is still the one before."""
        if (proposal.leader_epoch, proposal.partition_epoch) == (self.leader_epoch, self.partition_epoch):
            self._followers.withdraw()
            if self.role is _LEADER:
                self._count_replicas()

    def _advance_high_watermark(self) -> None:
        # Below min.insync.replicas nothing is committed (KAFKA-15583).
        if not self.lacks_replicas:
            self._commit_up_to(self._followers.committed_end(self.log.log_end_offset))

    def _commit_up_to(self, offset: int) -> None:
        """Raise the high watermark to an offset; it never goes back while this broker leads."""
        offset = min(offset, self.log.log_end_offset)
        if not self.is_replicated or offset <= self.log.high_watermark:
            return
        size, ends_transaction = 0, False
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[0].end_offset <= offset:
            batch = uncommitted.popleft()
            size += batch.size
            ends_transaction |= batch.is_marker
        self.log.set_high_watermark(offset)
        if self.parked:
            self._wake_consumers(size, ends_transaction)
        if self.role is Role.LEADER:
            self._commits.advance(offset)

    # Appending

    def append_as_leader(
        self,
        records: memoryview,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        inspect: Inspect = inspect,
    ) -> Appended:
        """Append a batch as the leader."""
        if self.role is not _LEADER:
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER)
        appended = self.log.append(records, self.leader_epoch, origin, inspect)
        if (self.parked or self.is_replicated) and not appended.duplicate:
            self._appended(len(records))
        return appended

    def write_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        coordinator_epoch: int,
        *,
        transaction_version: int = 1,
    ) -> int:
        """End a producer's transaction in this partition; returns the marker's offset."""
        self._check_leads()
        appended = self.log.append_marker(
            producer_id,
            producer_epoch,
            committed,
            coordinator_epoch,
            self.leader_epoch,
            transaction_version=transaction_version,
        )
        if self.parked or self.is_replicated:
            self._appended(END_MARKER_BYTES, is_marker=True)
        if self.on_marker is not None:
            self.on_marker(producer_id, producer_epoch, committed)
        return appended.base_offset

    def append_as_follower(self, records: memoryview, leader_epoch: int, leader_high_watermark: int) -> None:
        """Append what the leader of an epoch sent, and take over its high watermark."""
        self.check_follows(leader_epoch)
        if records:
            self.log.append_as_follower(records, leader_epoch)
            # There may be markers among them.
            self._appended(len(records), is_marker=True)
        self._commit_up_to(leader_high_watermark)

    def truncate_to(self, offset: int) -> list[Path]:
        """Drop the batches that reach to an offset or past it; returns files to remove after a delay."""
        if self.role is not Role.FOLLOWER:
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER, f"{self!r} does not follow a leader")
        retired = self.log.truncate_to(offset)
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[-1].end_offset > self.log.log_end_offset:
            uncommitted.pop()
        return retired

    def divergence(self, epoch: int, end_offset: int) -> int:
        """The offset to truncate to when the leader's largest epoch up to ours ends at an offset (KIP-279).

        Without that epoch in our log, the end of the largest smaller one: the leader is then asked again.
        """
        own_epoch, own_end_offset = self.log.epoch_end_offset(epoch)
        if own_epoch == epoch:
            return min(own_end_offset, end_offset)
        return own_end_offset if own_epoch >= 0 else end_offset

    def _check_leads(self) -> None:
        if self.role is not _LEADER:
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER)

    def check_follows(self, leader_epoch: int) -> None:
        """A response of an earlier leader must not reach the log behind the back of the next."""
        if self.role is not Role.FOLLOWER or leader_epoch != self.leader_epoch:
            raise KafkaError(Error.FENCED_LEADER_EPOCH)

    # Waking

    def _appended(self, size: int, *, is_marker: bool = False) -> None:
        if not self.is_replicated:
            self._wake_consumers(size, is_marker)
        else:
            self._uncommitted.append(_Uncommitted(self.log.log_end_offset, size, is_marker))
        for fetch in tuple(self.parked):
            if fetch.is_follower:
                fetch.appended(size)

    def _wake_consumers(self, size: int, ends_transaction: bool) -> None:
        """Tell parked fetches of so many more committed bytes."""
        is_stable = self.log.last_stable_offset == self.log.high_watermark
        for fetch in tuple(self.parked):
            if fetch.is_follower:
                continue
            if not fetch.reads_committed:
                fetch.appended(size)
            elif ends_transaction:
                # The records that the transaction held back were not counted.
                fetch.wake()
            elif is_stable:
                fetch.appended(size)

    def wake(self) -> None:
        """Let parked fetches answer at once, with whatever there is."""
        for fetch in tuple(self.parked):
            fetch.wake()

    # Leader epochs

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to the given one and the offset where it ended; (-1, -1) where unknown.

        The current epoch is known before anything is written in it.
        """
        log = self.log
        if epoch == self.leader_epoch:
            return epoch, log.log_end_offset
        latest = log.latest_epoch
        if 0 <= epoch < self.leader_epoch and (latest is None or latest < epoch):
            # No record is from that epoch here, and none from a later one yet.
            return epoch if latest is None else latest, log.log_end_offset
        return log.epoch_end_offset(epoch)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that wrote an offset, or will write it; -1 where unknown."""
        return self.leader_epoch if offset >= self.log.log_end_offset else self.log.epoch_at(offset)

    def check_leader_epoch(self, epoch: int) -> None:
        """A client that names the leader epoch it knows must know the current one."""
        if epoch in (UNKNOWN_LEADER_EPOCH, self.leader_epoch):
            return
        if epoch < self.leader_epoch:
            raise KafkaError(Error.FENCED_LEADER_EPOCH)
        raise KafkaError(Error.UNKNOWN_LEADER_EPOCH)


def _others(brokers: Collection[int], node_id: int) -> list[int]:
    return [broker for broker in brokers if broker != node_id]
