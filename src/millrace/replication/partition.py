"""A partition as its clients see it: one log, led by this broker."""

from __future__ import annotations

from collections.abc import Callable

from millrace.errors import Error, KafkaError
from millrace.replication.waiting import ParkedFetch
from millrace.storage.append_origin import AppendOrigin
from millrace.storage.log import Appended, Log
from millrace.wire.control_batch import END_MARKER_BYTES

UNKNOWN_LEADER_EPOCH = -1


class Partition:
    """Owned by the broker loop; not thread-safe."""

    __slots__ = ("index", "leader_epoch", "log", "on_marker", "parked", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: bytes, index: int, log: Log) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_epoch = 0
        self.parked: set[ParkedFetch] = set()
        self.on_marker: Callable[[int, int, bool], object] | None = None
        """Told of each transaction that ends here: producer id, epoch, whether it committed."""

    def __repr__(self) -> str:
        return f"Partition({self.topic}-{self.index})"

    def become_leader(self, leader_epoch: int, replicas: tuple[int, ...], isr: tuple[int, ...]) -> None:
        """Lead in an epoch."""
        self.leader_epoch = leader_epoch

    def become_follower(self, leader_epoch: int, leader: int) -> None:
        """Follow another broker in an epoch; fetches that wait here are answered at once."""
        self.leader_epoch = leader_epoch
        self.wake()

    @property
    def high_watermark(self) -> int:
        """Where consumers may read to: with one replica, the end of the log."""
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """Where `read_committed` consumers may read to: up to the first open transaction."""
        return self.log.last_stable_offset

    def append(self, records: memoryview, origin: AppendOrigin = AppendOrigin.CLIENT) -> Appended:
        appended = self.log.append(records, self.leader_epoch, origin)
        if self.parked and not appended.duplicate:
            self.wake(len(records))
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
        appended = self.log.append_marker(
            producer_id,
            producer_epoch,
            committed,
            coordinator_epoch,
            self.leader_epoch,
            transaction_version=transaction_version,
        )
        for fetch in tuple(self.parked):
            if fetch.reads_committed:
                # What the transaction held back is there now, and nobody has counted it.
                fetch.wake()
            else:
                fetch.appended(END_MARKER_BYTES)
        if self.on_marker is not None:
            self.on_marker(producer_id, producer_epoch, committed)
        return appended.base_offset

    def wake(self, appended_bytes: int | None = None) -> None:
        """Tell parked fetches of new bytes; without a number they answer at once, whatever there is."""
        is_stable = self.log.last_stable_offset == self.log.log_end_offset
        for fetch in tuple(self.parked):
            if appended_bytes is None:
                fetch.wake()
            elif is_stable or not fetch.reads_committed:
                fetch.appended(appended_bytes)

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to the given one and the offset where it ended; (-1, -1) where unknown.

        The current epoch is known before anything is written in it.
        """
        if epoch == self.leader_epoch:
            return epoch, self.log.log_end_offset
        return self.log.epoch_end_offset(epoch)

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
