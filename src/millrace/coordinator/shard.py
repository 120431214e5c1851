"""The state of a coordinator behind one partition of its internal topic."""

from __future__ import annotations

from typing import Protocol

from millrace.coordinator.records import Origin, StateRecord


class Shard(Protocol):
    """The state behind one partition of the internal topic; only replaying changes it."""

    def replay(self, record: StateRecord, origin: Origin) -> None: ...

    def end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """A marker has ended a transaction whose records are in this partition."""

    def loaded(self) -> None:
        """Everything in the log has been replayed: timers may start."""

    def unloaded(self) -> None:
        """This broker no longer leads the partition: timers stop, and parked requests are refused."""
