"""A log in memory, with as much of `millrace.storage.log.Log` as a partition uses."""

from pathlib import Path
from struct import Struct

from millrace.config import LogConfig
from millrace.storage.append_origin import AppendOrigin
from millrace.storage.inspection import Inspect
from millrace.storage.log import Appended

_RECORD = Struct(">II")


class MemoryLog:
    """Records of eight bytes: the leader epoch and a value. It outlives the process of its broker."""

    def __init__(self, config: LogConfig) -> None:
        self.config = config
        self.records: list[tuple[int, int]] = []
        self.log_start_offset = 0
        self.recovery_point = 0
        self._high_watermark: int | None = None

    @property
    def log_end_offset(self) -> int:
        return len(self.records)

    @property
    def size(self) -> int:
        return len(self.records) * _RECORD.size

    @property
    def high_watermark(self) -> int:
        return len(self.records) if self._high_watermark is None else self._high_watermark

    last_stable_offset = high_watermark

    def set_high_watermark(self, offset: int | None) -> None:
        self._high_watermark = None if offset is None else min(offset, len(self.records))

    @property
    def latest_epoch(self) -> int | None:
        return self.records[-1][0] if self.records else None

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """As `storage.leader_epochs` has it."""
        if self.latest_epoch is None or epoch > self.latest_epoch:
            return -1, -1
        for offset in range(len(self.records), 0, -1):
            if self.records[offset - 1][0] <= epoch:
                return self.records[offset - 1][0], offset
        return epoch, 0

    def append(self, records: memoryview, epoch: int, _: AppendOrigin, inspect: Inspect) -> Appended:
        offset = len(self.records)
        self.records.append((epoch, int.from_bytes(records)))
        return Appended(offset, offset, -1, 0, False)

    def append_as_follower(self, records: memoryview, leader_epoch: int) -> None:
        for epoch, value in _RECORD.iter_unpack(records):
            assert epoch <= leader_epoch, "a record of a later epoch than its leader's"
            self.records.append((epoch, value))

    def read(self, offset: int, count: int) -> bytes:
        return b"".join(_RECORD.pack(*record) for record in self.records[offset : offset + count])

    def truncate_to(self, offset: int) -> list[Path]:
        del self.records[offset:]
        self.set_high_watermark(self._high_watermark)
        return []
