"""A producer that repeats its last five batches after a crash gets the offsets they already have."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from millrace.clock import Clock
from millrace.config import LogConfig
from millrace.disk import Disk
from millrace.storage.log import Log
from millrace.wire.records import Record, build_batch

RECORDS = 10
# As many as a client may have in flight.
BATCHES = 5


def batch(number: int) -> memoryview:
    records = [Record(offset, 1_700_000_000_000, b"key", b"v" * 100) for offset in range(RECORDS)]
    return memoryview(build_batch(records, producer_id=7, producer_epoch=0, base_sequence=number * RECORDS))


@pytest.mark.parametrize("clean", [False, True], ids=["killed", "stopped"])
@pytest.mark.parametrize("rolled_after", [(), (1,), (4,), (5,), (2, 4), (1, 2, 3, 4, 5)], ids=str)
def test_batches_are_recognized_wherever_segments_begin(
    rolled_after: Sequence[int], clean: bool, tmp_path: Path
) -> None:
    directory = tmp_path / "topic-0"
    log = Log.open(directory, LogConfig(), clock=Clock(), disk=Disk())
    for number in range(BATCHES):
        log.append(batch(number), leader_epoch=0)
        if number + 1 in rolled_after:
            log.roll()
    end_offset = log.log_end_offset
    log.close() if clean else log.abandon()

    log = Log.open(directory, LogConfig(), clock=Clock(), disk=Disk(), clean=clean)
    repeated = [log.append(batch(number), leader_epoch=0) for number in range(BATCHES)]
    assert [appended.base_offset for appended in repeated] == list(range(0, end_offset, RECORDS))
    assert all(appended.duplicate for appended in repeated)
    assert log.log_end_offset == end_offset
    log.abandon()
