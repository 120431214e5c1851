"""What a coordinator keeps for one partition of its internal topic."""

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
