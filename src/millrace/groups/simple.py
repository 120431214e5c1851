"""A group that is nothing but its offsets: of consumers that choose their partitions themselves."""

from __future__ import annotations

from collections.abc import Collection

from millrace.coordinator.records import StateRecord
from millrace.errors import Error, KafkaError
from millrace.groups.group import Commit, Group

NO_GENERATION = -1


class SimpleGroup(Group):
    """Stands for offsets whose group has no members and never kept a record of its own."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    @property
    def kind(self) -> str:
        return "classic"

    @property
    def state(self) -> str:
        return "Empty"

    @property
    def protocol_type(self) -> str:
        return ""

    @property
    def is_empty(self) -> bool:
        return True

    def validate_commit(self, commit: Commit) -> None:
        if commit.generation > NO_GENERATION:
            raise KafkaError(Error.UNKNOWN_MEMBER_ID)

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> None:
        return

    def validate_delete_offsets(self) -> None:
        return

    def subscribed_topics(self) -> Collection[str]:
        return ()

    def offsets_idle_since(self, commit_timestamp_ms: int) -> int:
        return commit_timestamp_ms

    def tombstones(self) -> list[StateRecord]:
        return []
