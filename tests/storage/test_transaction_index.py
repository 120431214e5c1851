"""The index of aborted transactions: its file, its lookups, its repair."""

from pathlib import Path

import pytest

from millrace.disk import Disk
from millrace.storage.transaction_index import AbortedTransaction, TransactionIndex, collect_aborted
from millrace.testing.disk import FaultyDisk

ENTRIES = [
    AbortedTransaction(producer_id=1, first_offset=0, last_offset=10, last_stable_offset=11),
    AbortedTransaction(producer_id=2, first_offset=5, last_offset=20, last_stable_offset=15),
    AbortedTransaction(producer_id=1, first_offset=15, last_offset=30, last_stable_offset=31),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000000.txnindex"


@pytest.fixture
def index(path: Path) -> TransactionIndex:
    index = TransactionIndex(path, Disk())
    for entry in ENTRIES:
        index.append(entry)
    return index


def reopened(path: Path) -> TransactionIndex:
    return TransactionIndex(path, Disk(), path.stat().st_size)


def found(index: TransactionIndex, start: int, end: int) -> list[AbortedTransaction]:
    entries: list[AbortedTransaction] = []
    index.collect(start, end, entries)
    return entries


def test_the_file_is_kafkas(index: TransactionIndex, path: Path) -> None:
    index.write()
    assert path.read_bytes()[:34] == bytes.fromhex(
        "0000 0000000000000001 0000000000000000 000000000000000a 000000000000000b"
    )
    assert path.stat().st_size == 3 * 34


def test_there_is_no_file_without_an_entry(path: Path) -> None:
    TransactionIndex(path, Disk()).write()
    assert not path.exists()


def test_entries_are_found_by_the_range_they_have_records_in(index: TransactionIndex) -> None:
    assert found(index, 0, 100) == ENTRIES
    assert found(index, 11, 100) == ENTRIES[1:]
    assert found(index, 21, 100) == ENTRIES[2:]
    assert found(index, 31, 100) == []
    assert found(index, 0, 5) == ENTRIES[:1]
    assert found(index, 11, 15) == ENTRIES[1:2]


def test_the_search_ends_where_the_log_was_stable(index: TransactionIndex) -> None:
    assert index.collect(0, 11, [])
    assert index.collect(0, 31, [])
    assert not index.collect(0, 32, [])


def test_a_transaction_is_found_in_the_index_of_a_later_segment(tmp_path: Path) -> None:
    first, second = (TransactionIndex(tmp_path / name, Disk()) for name in ("a", "b"))
    first.append(AbortedTransaction(1, 0, 4, 2))
    second.append(AbortedTransaction(2, 2, 50, 51))
    second.append(AbortedTransaction(3, 60, 70, 71))
    assert collect_aborted([first, None, second], 0, 3) == [
        AbortedTransaction(1, 0, 4, 2),
        AbortedTransaction(2, 2, 50, 51),
    ]


def test_entries_survive_the_way_to_the_file(index: TransactionIndex, path: Path) -> None:
    index.write()
    index.append(AbortedTransaction(9, 31, 40, 41))
    index.write()
    index.release()
    assert found(index, 0, 100) == found(reopened(path), 0, 100) == [*ENTRIES, (9, 31, 40, 41)]
    assert reopened(path).last_offset == 40


def test_what_is_not_written_is_not_let_go_of(index: TransactionIndex) -> None:
    index.release()
    assert found(index, 0, 100) == ENTRIES


def test_a_failed_write_is_made_up_for(path: Path) -> None:
    disk = FaultyDisk()
    index = TransactionIndex(path, disk)
    index.append(ENTRIES[0])
    disk.fail_next_write()
    with pytest.raises(OSError):
        index.write()
    index.append(ENTRIES[1])
    index.write()
    assert found(reopened(path), 0, 100) == ENTRIES[:2]


@pytest.mark.parametrize("stored", [True, False])
def test_truncation_drops_markers_from_an_offset_on(
    index: TransactionIndex, path: Path, stored: bool
) -> None:
    if stored:
        index.write()
    index.truncate(20)
    assert found(index, 0, 100) == ENTRIES[:1]
    index.write()
    assert found(reopened(path), 0, 100) == ENTRIES[:1]


def test_faults_are_found(index: TransactionIndex, path: Path) -> None:
    index.write()
    good = path.read_bytes()
    assert reopened(path).fault() is None
    for bad in (good[:-1], b"\0\1" + good[2:], good + good[:34], good[:2] + b"\0" * 8 + b"\x7f" + good[11:]):
        path.write_bytes(bad)
        assert reopened(path).fault() is not None
