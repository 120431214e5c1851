"""Producer ids are given once for all time."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from millrace.errors import Error, KafkaError
from millrace.storage.log_dir import LogDir
from millrace.testing.disk import FaultyDisk
from millrace.txn.producer_ids import BLOCK_SIZE, ProducerIds


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def log_dir(tmp_path: Path, disk: FaultyDisk) -> Iterator[LogDir]:
    log_dir = LogDir(tmp_path / "data", disk)
    yield log_dir
    log_dir.close()


def new_ids(log_dir: LogDir, in_use: Iterable[int] = ()) -> ProducerIds:
    """Producer ids of a broker whose logs are open."""
    ids = ProducerIds(log_dir)
    ids.begin_after(in_use)
    return ids


def test_no_id_is_given_before_the_logs_tell_which_are_in_use(log_dir: LogDir) -> None:
    ids = ProducerIds(log_dir)
    with pytest.raises(KafkaError) as refused:
        ids.allocate()
    assert refused.value.error is Error.COORDINATOR_LOAD_IN_PROGRESS
    ids.begin_after([41])
    assert ids.allocate() == 42


def test_ids_rise_across_blocks(log_dir: LogDir) -> None:
    ids = new_ids(log_dir)
    assert [ids.allocate() for _ in range(2 * BLOCK_SIZE + 1)] == list(range(2 * BLOCK_SIZE + 1))


def test_a_killed_broker_never_gives_an_id_again(log_dir: LogDir) -> None:
    given: set[int] = set()
    for count in (1, BLOCK_SIZE, BLOCK_SIZE + 1, 3):
        ids = new_ids(log_dir)
        fresh = {ids.allocate() for _ in range(count)}
        assert not fresh & given
        given |= fresh


def test_an_id_that_could_not_be_written_down_is_not_given(log_dir: LogDir, disk: FaultyDisk) -> None:
    ids = new_ids(log_dir)
    disk.fail_next_write()
    with pytest.raises(OSError):
        ids.allocate()
    first = ids.allocate()
    assert new_ids(log_dir).allocate() > first


def test_a_damaged_file_is_named(log_dir: LogDir) -> None:
    new_ids(log_dir).allocate()
    (log_dir.path / "producer-ids.json").write_text("nonsense")
    with pytest.raises(OSError, match=r"producer-ids\.json cannot be read"):
        ProducerIds(log_dir)


def test_ids_in_use_are_not_assigned_again(log_dir: LogDir) -> None:
    ids = new_ids(log_dir)
    first = ids.allocate()
    ids.skip_past(first)
    ids.skip_past(41)
    assert ids.allocate() == 42
    ids.skip_past(5 * BLOCK_SIZE)
    assert ids.allocate() == 5 * BLOCK_SIZE + 1
    assert new_ids(log_dir).allocate() > 5 * BLOCK_SIZE + 1


def test_ids_in_use_count_where_nothing_is_written_down(log_dir: LogDir) -> None:
    assert new_ids(log_dir, in_use=[3, 70, 5]).allocate() == 71
    assert new_ids(log_dir, in_use=[9000]).allocate() == 71 + BLOCK_SIZE
