"""Compaction as work on segment files: what stays, what goes, and in which form."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from millrace.disk import Disk
from millrace.storage import swap
from millrace.storage.compaction import Compaction, Job, Pass, Source, read_batches
from millrace.storage.indexes import OffsetIndex, TimeIndex
from millrace.storage.record_filter import STAND_IN_BYTES
from millrace.storage.transaction_index import AbortedTransaction
from millrace.wire.compression import Codec
from millrace.wire.records import (
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CorruptBatch,
    Record,
    assemble,
    build_batch,
    iterate_records,
    read_header,
)

from .. import crafted

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


class SegmentFiles:
    """A partition's directory of sealed segments, without the log that usually owns it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.next_offset = 0
        self.bases: list[int] = []

    def segment(self, *batches: bytes) -> None:
        """Write the next sealed segment."""
        self.bases.append(self.next_offset)
        (self.directory / f"{self.next_offset:020d}.log").write_bytes(b"".join(batches))
        self.next_offset = self.headers()[-1].next_offset

    def job(self, first_dirty_offset: int = 0, **changes: object) -> Job:
        fields: dict[str, object] = {
            "directory": str(self.directory),
            "segments": [Source(base, self.path(base).stat().st_size, 0, 0) for base in self.bases],
            "first_dirty_offset": first_dirty_offset,
            "first_uncleanable_offset": self.next_offset,
            "segment_bytes": 1 << 30,
            "segment_index_bytes": 10 << 20,
            "index_interval_bytes": 4096,
            "delete_retention_ms": DAY_MS,
            "max_keys": 1000,
            "max_bytes_per_second": 1e300,
            "now_ms": NOW_MS,
            "producers": [],
        }
        return Job(**(fields | changes))

    def clean(self, first_dirty_offset: int = 0, **changes: object) -> Pass:
        """One whole pass, swapped in."""
        compaction = Compaction(self.job(first_dirty_offset, **changes))
        for replacement in compaction.run():
            swap.stage(self.directory, replacement.base_offset, Disk())
            swap.put_in_place(self.directory, replacement.base_offset, replacement.replaces, Disk())
            self.bases = [base for base in self.bases if base not in replacement.replaces[1:]]
        return compaction.done

    def path(self, base: int) -> Path:
        return self.directory / f"{base:020d}.log"

    def batches(self) -> Iterator[tuple[BatchHeader, bytes]]:
        for base in self.bases:
            yield from read_batches(self.path(base), self.path(base).stat().st_size)

    def headers(self) -> list[BatchHeader]:
        return [header for header, _ in self.batches()]

    def records(self) -> list[Record]:
        return [record for _, batch in self.batches() for record in iterate_records(batch)]

    def values(self) -> list[tuple[int, bytes | None, bytes | None]]:
        return [(record.offset, record.key, record.value) for record in self.records()]


def batch(
    base_offset: int, *pairs: tuple[bytes | None, bytes | None], timestamp: int = NOW_MS, **options: object
) -> bytes:
    records = [
        Record(base_offset + delta, timestamp + delta, key, value) for delta, (key, value) in enumerate(pairs)
    ]
    return build_batch(records, **options)


@pytest.fixture
def files(tmp_path: Path) -> SegmentFiles:
    return SegmentFiles(tmp_path)


def test_the_last_record_of_each_key_stays_with_its_offset(files: SegmentFiles) -> None:
    files.segment(batch(0, (b"a", b"1"), (b"b", b"1"), (b"a", b"2")))
    files.segment(batch(3, (b"c", b"1"), (b"b", b"2")))
    done = files.clean()
    assert files.values() == [(2, b"a", b"2"), (3, b"c", b"1"), (4, b"b", b"2")]
    assert (done.end_offset, done.keys, done.records_read, done.records_kept) == (5, 3, 5, 3)


def test_a_batch_keeps_its_offsets_sequence_and_epoch_when_records_go(files: SegmentFiles) -> None:
    pairs = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", b"2")]
    original = batch(0, *pairs, producer_id=7, producer_epoch=3, base_sequence=40, leader_epoch=5)
    files.segment(original)
    before = files.headers()[0]
    files.clean()
    after = files.headers()[0]
    kept = ("base_offset", "last_offset", "last_sequence", "producer_id", "producer_epoch", "leader_epoch")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
    assert after.record_count == 2


def test_the_last_offset_of_a_batch_survives_its_last_record(files: SegmentFiles) -> None:
    files.segment(batch(0, (b"a", b"1"), (b"b", b"1")))
    files.segment(batch(2, (b"b", b"2")))
    files.clean()
    assert [(header.base_offset, header.last_offset) for header in files.headers()] == [(0, 1), (2, 2)]
    assert files.values() == [(0, b"a", b"1"), (2, b"b", b"2")]


def test_a_batch_without_losses_keeps_its_bytes(files: SegmentFiles) -> None:
    whole = batch(0, (b"a", b"1"), (b"b", b"1"), codec=Codec.ZSTD)
    files.segment(whole, batch(2, (b"c", b"1")))
    files.segment(batch(3, (b"c", b"2")))
    files.clean()
    assert next(files.batches())[1] == whole


def test_a_segment_without_losses_is_left_alone(files: SegmentFiles) -> None:
    files.segment(batch(0, (b"a", b"1")))
    assert list(Compaction(files.job()).run()) == []
    assert [path.name for path in files.directory.iterdir()] == ["00000000000000000000.log"]


def test_records_without_a_key_are_dropped(files: SegmentFiles) -> None:
    files.segment(batch(0, (None, b"1"), (b"a", b"1"), (None, b"2")), batch(3, (b"b", b"1")))
    files.clean()
    assert files.values() == [(1, b"a", b"1"), (3, b"b", b"1")]


def test_an_empty_key_is_a_key(files: SegmentFiles) -> None:
    files.segment(batch(0, (b"", b"1"), (b"", b"2")))
    files.clean()
    assert files.values() == [(1, b"", b"2")]


@pytest.mark.parametrize("length", [STAND_IN_BYTES - 1, STAND_IN_BYTES, 63, 64, 8191, 8192, 70_000])
def test_long_keys_are_told_apart(files: SegmentFiles, length: int) -> None:
    one, other = b"x" * (length - 1) + b"1", b"x" * (length - 1) + b"2"
    files.segment(batch(0, (one, b"1"), (other, b"1"), (one, b"2")))
    files.clean()
    assert files.values() == [(1, other, b"1"), (2, one, b"2")]


@pytest.mark.parametrize("codec", list(Codec))
def test_compression_is_kept(files: SegmentFiles, codec: Codec) -> None:
    pairs = [(b"key-%d" % (number % 300), b"value" * 20) for number in range(1000)]
    files.segment(batch(0, *pairs, codec=codec))
    files.clean()
    assert files.headers()[0].codec is codec
    assert [record.offset for record in files.records()] == list(range(700, 1000))


def test_headers_and_timestamps_of_kept_records_do_not_change(files: SegmentFiles) -> None:
    records = [
        Record(0, NOW_MS + 100, b"a", b"1"),
        Record(1, NOW_MS - 50, b"b", b"1", (("trace", b"x"), ("none", None))),
        Record(2, NOW_MS + 90_000, b"a", b"2"),
        Record(3, NOW_MS + 7, b"c", None, (("why", b"gone"),)),
    ]
    files.segment(build_batch(records))
    files.segment(batch(4, (b"a", b"3")))
    files.clean()
    assert files.records()[:2] == [records[1], records[3]]
    assert files.headers()[0].max_timestamp == NOW_MS + 7


def test_the_append_time_of_a_batch_stays(files: SegmentFiles) -> None:
    files.segment(batch(0, (b"a", b"1"), (b"b", None), (b"a", b"2"), attributes=LOG_APPEND_TIME_BIT))
    before = files.headers()[0]
    files.clean()
    assert files.headers()[0].max_timestamp == before.max_timestamp
    assert {record.timestamp for record in files.records()} == {before.max_timestamp}


def test_an_active_producers_last_batch_stays_without_its_records(files: SegmentFiles) -> None:
    producer = {"producer_id": 9, "producer_epoch": 1}
    files.segment(
        batch(0, (b"a", b"1"), base_sequence=0, **producer),
        batch(1, (b"a", b"2"), base_sequence=1, **producer),
        batch(2, (b"a", b"3"), producer_id=10, producer_epoch=0, base_sequence=0),
        batch(3, (b"a", b"4")),
    )
    files.clean(producers=[(9, 1)])
    headers = files.headers()
    assert [(header.producer_id, header.last_sequence, header.record_count) for header in headers] == [
        (9, 1, 0),
        (-1, -1, 1),
    ]
    files.clean(files.next_offset)
    assert len(files.headers()) == 1


def test_a_segments_last_batch_stays_without_its_records(files: SegmentFiles) -> None:
    files.segment(batch(0, (b"a", b"1")), batch(1, (b"a", b"2"), codec=Codec.GZIP))
    files.segment(batch(2, (b"a", b"3")))
    files.clean(segment_bytes=1)
    assert files.bases == [0, 2]
    assert [(header.base_offset, header.record_count, header.codec) for header in files.headers()] == [
        (1, 0, Codec.NONE),
        (2, 1, Codec.NONE),
    ]
    files.clean(files.next_offset)
    assert [header.base_offset for header in files.headers()] == [2]


class TestTombstones:
    def test_the_first_pass_stamps_the_horizon_and_keeps_timestamps(self, files: SegmentFiles) -> None:
        files.segment(batch(0, (b"a", b"1"), (b"b", b"1"), (b"a", None), codec=Codec.LZ4))
        files.clean()
        header = files.headers()[0]
        assert header.delete_horizon_ms == NOW_MS + DAY_MS
        assert header.codec is Codec.LZ4
        assert files.records() == [Record(1, NOW_MS + 1, b"b", b"1"), Record(2, NOW_MS + 2, b"a", None)]
        assert header.max_timestamp == NOW_MS + 2

    def test_a_later_pass_does_not_move_the_horizon(self, files: SegmentFiles) -> None:
        files.segment(batch(0, (b"a", None), (b"b", b"1")))
        files.clean()
        files.segment(batch(2, (b"b", b"2")))
        files.clean(2, now_ms=NOW_MS + DAY_MS - 1)
        assert files.headers()[0].delete_horizon_ms == NOW_MS + DAY_MS
        assert files.values() == [(0, b"a", None), (2, b"b", b"2")]

    def test_they_go_at_the_horizon(self, files: SegmentFiles) -> None:
        files.segment(batch(0, (b"a", None), (b"b", b"1")))
        files.clean()
        files.segment(batch(2, (b"c", b"1")))
        files.clean(2, now_ms=NOW_MS + DAY_MS)
        assert files.values() == [(1, b"b", b"1"), (2, b"c", b"1")]

    def test_a_newer_value_replaces_one(self, files: SegmentFiles) -> None:
        files.segment(batch(0, (b"a", None)), batch(1, (b"a", b"1")))
        files.clean()
        assert files.values() == [(1, b"a", b"1")]


class TestDirtyRange:
    def test_keys_of_the_clean_part_are_not_mapped(self, files: SegmentFiles) -> None:
        files.segment(batch(0, (b"a", b"1"), (b"b", b"1")))
        files.segment(batch(2, (b"b", b"2"), (b"b", b"3")))
        done = files.clean(2)
        assert done.keys == 1
        assert files.values() == [(0, b"a", b"1"), (3, b"b", b"3")]

    def test_a_full_map_ends_the_range_and_the_next_pass_continues(self, files: SegmentFiles) -> None:
        files.segment(*(batch(offset, (b"%d" % (offset % 10), b"v%d" % offset)) for offset in range(30)))
        done = files.clean(max_keys=4)
        assert done.dedupe_buffer_full
        assert done.end_offset == 4
        assert len(files.records()) == 30
        passes = 1
        while done.end_offset < 30:
            done = files.clean(done.end_offset, max_keys=4)
            passes += 1
        assert passes > 2
        assert [record.offset for record in files.records()] == list(range(20, 30))

    def test_a_batch_with_more_keys_than_the_map_holds_still_gets_done(self, files: SegmentFiles) -> None:
        files.segment(batch(0, *((b"%d" % (number % 50), b"") for number in range(100))))
        done = files.clean(max_keys=1)
        assert done.end_offset == 100
        assert len(files.records()) == 50

    def test_tombstones_beyond_the_range_are_not_stamped(self, files: SegmentFiles) -> None:
        files.segment(batch(0, (b"a", b"1"), (b"a", b"2")), batch(2, (b"b", None)))
        files.clean(max_keys=1)
        assert [header.delete_horizon_ms for header in files.headers()] == [None, None]


class TestGroups:
    def fill(self, files: SegmentFiles, *keys: bytes) -> int:
        """One record in each segment, all of the same size, which is returned."""
        for key in keys:
            files.segment(batch(files.next_offset, (key, b"value")))
        return files.path(0).stat().st_size

    def replaced(self, files: SegmentFiles, **changes: object) -> list[list[int]]:
        return [replacement.replaces for replacement in Compaction(files.job(**changes)).run()]

    def test_small_neighbours_become_one_segment(self, files: SegmentFiles) -> None:
        size = self.fill(files, b"a", b"b", b"c", b"d", b"e")
        assert self.replaced(files, segment_bytes=2 * size) == [[0, 1], [2, 3]]

    def test_what_stays_counts_not_what_was(self, files: SegmentFiles) -> None:
        size = self.fill(files, b"a", b"a", b"a", b"b", b"c")
        assert self.replaced(files, segment_bytes=2 * size) == [[0, 1, 2, 3]]

    @pytest.mark.parametrize("kind", ["index_size", "time_index_size"])
    def test_indexes_limit_a_group(self, files: SegmentFiles, kind: str) -> None:
        self.fill(files, b"a", b"b", b"c")
        sources = [replace(source, **{kind: 12}) for source in files.job().segments]
        limits = {"index_interval_bytes": 0, "segment_index_bytes": 19}
        assert self.replaced(files, segments=sources, **limits) == [[0, 1]]

    def test_a_group_spans_no_more_offsets_than_an_index_can_hold(self, files: SegmentFiles) -> None:
        self.fill(files, b"a", b"b")
        files.next_offset = 2**31 - 2
        self.fill(files, b"c", b"d", b"e", b"f")
        assert self.replaced(files) == [[0, 1, 2**31 - 2, 2**31 - 1], [2**31, 2**31 + 1]]

    def test_segments_without_survivors_leave_no_empty_segment_behind(self, files: SegmentFiles) -> None:
        size = self.fill(files, *([b"a"] * 10))
        files.clean(segment_bytes=size)
        assert files.bases == [0]
        assert [header.record_count for header in files.headers()] == [1]

    def test_a_merged_segment_replaces_all_its_sources(self, files: SegmentFiles) -> None:
        for offset in range(5):
            files.segment(batch(offset, (b"a", b"%d" % offset)))
        files.clean()
        assert files.bases == [0]
        assert files.values() == [(4, b"a", b"4")]
        assert sorted(path.name for path in files.directory.glob("*.log")) == ["00000000000000000000.log"]


def test_an_empty_segment_at_the_end_of_a_group_hides_no_offsets(files: SegmentFiles) -> None:
    files.segment(batch(0, (b"a", b"1")), batch(1, (None, b"dropped")))
    files.bases.append(2)
    files.path(2).touch()
    files.clean()
    assert [(header.last_offset, header.record_count) for header in files.headers()] == [(0, 1), (1, 0)]


def test_indexes_of_the_new_segment_point_at_its_batches(files: SegmentFiles) -> None:
    for base in (0, 50):
        files.segment(
            *(
                batch(offset, (b"%d" % (offset % 40), b"x" * 500), timestamp=NOW_MS + offset)
                for offset in range(base, base + 50)
            )
        )
    files.clean(index_interval_bytes=1000)
    positions = {}
    position = 0
    for header, content in files.batches():
        positions[header.last_offset] = position
        position += len(content)
    index_path, time_index_path = (files.path(0).with_suffix(suffix) for suffix in (".index", ".timeindex"))
    index = OffsetIndex(index_path, 0, Disk(), index_path.stat().st_size)
    time_index = TimeIndex(time_index_path, 0, Disk(), time_index_path.stat().st_size)
    assert len(index) > 10
    for offset in range(65, 100):
        entry = index.floor_offset(offset)
        assert entry is not None
        assert positions[entry.offset] == entry.position
    assert time_index.last() == (NOW_MS + 99, 99)


class TestCorruption:
    def test_a_flipped_bit_stops_the_pass(self, files: SegmentFiles) -> None:
        files.segment(batch(0, (b"a", b"1"), (b"a", b"2")), batch(2, (b"b", b"1")))
        content = bytearray(files.path(0).read_bytes())
        content[-3] ^= 1
        files.path(0).write_bytes(content)
        with pytest.raises(CorruptBatch, match="crc"):
            files.clean()
        assert files.path(0).read_bytes() == content
        assert not list(files.directory.glob("*.cleaned"))

    @pytest.mark.parametrize("size", [1, 40, 61, 69])
    def test_a_cut_off_batch_stops_the_pass(self, files: SegmentFiles, size: int) -> None:
        files.segment(batch(0, (b"a", b"1")), batch(1, (b"a", b"2")))
        content = files.path(0).read_bytes()
        files.path(0).write_bytes(content[: len(content) // 2 + size])
        with pytest.raises(CorruptBatch):
            files.clean()


class TestUnreadableBatches:
    """Batches that a client sent broken, with a right checksum."""

    def poisoned(self, files: SegmentFiles, unreadable: bytes) -> None:
        """Two segments of readable records around the batch, which has the offsets from 2 on."""
        following = read_header(unreadable).next_offset
        files.segment(batch(0, (b"key", b"1"), (b"other", b"1")), unreadable)
        files.segment(batch(following, (b"other", b"2")), batch(following + 1, (b"last", b"1")))

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
    @pytest.mark.parametrize("fault", crafted.BROKEN_RECORDS)
    def test_one_stays_as_it_is_and_the_rest_is_compacted(
        self, files: SegmentFiles, fault: str, codec: Codec
    ) -> None:
        unreadable = crafted.batch([crafted.BROKEN_RECORDS[fault]], base_offset=2, codec=codec)
        self.poisoned(files, unreadable)
        done = files.clean()
        assert (done.end_offset, done.unreadable_batches) == (5, 1)
        assert done.unreadable_reason.startswith("the batch at offset 2: ")
        kept = [content for _, content in files.batches()]
        assert unreadable in kept
        kept.remove(unreadable)
        assert [record.value for content in kept for record in iterate_records(content)] == [b"1", b"2", b"1"]

    @pytest.mark.parametrize("offsets", crafted.WRONG_OFFSETS)
    def test_wrong_offsets_replace_no_record_of_others(self, files: SegmentFiles, offsets: str) -> None:
        deltas = crafted.WRONG_OFFSETS[offsets]
        records = [crafted.record(delta, key=b"last") for delta in deltas]
        unreadable = crafted.batch(records, count=len(deltas), base_offset=2)
        self.poisoned(files, unreadable)
        assert files.clean().unreadable_batches == 1
        batches = [content for _, content in files.batches()]
        assert unreadable in batches
        (last,) = iterate_records(batches[-1])
        assert (last.key, last.value) == (b"last", b"1")

    def test_later_passes_keep_one_too(self, files: SegmentFiles) -> None:
        unreadable = crafted.batch([b"noise"], base_offset=2)
        self.poisoned(files, unreadable)
        for value in (b"3", b"4"):
            clean_up_to = files.clean().end_offset
            files.segment(batch(files.next_offset, (b"other", value)))
            assert files.clean(clean_up_to).unreadable_batches == 1
        batches = [content for _, content in files.batches()]
        assert unreadable in batches
        assert [record.value for record in iterate_records(batches[-1])] == [b"4"]

    def test_an_aborted_one_goes(self, files: SegmentFiles) -> None:
        header = read_header(crafted.batch([b"noise"], base_offset=2))
        unreadable = assemble(
            header._replace(attributes=TRANSACTIONAL_BIT, producer_id=7, producer_epoch=0, base_sequence=0),
            b"noise",
        )
        self.poisoned(files, unreadable)
        files.clean(aborted=[AbortedTransaction(7, 2, 2, 3)])
        assert unreadable not in [content for _, content in files.batches()]


class TestOddRecords:
    """Records that other brokers accept, although no client library writes them."""

    @pytest.mark.parametrize("fault", crafted.BROKEN_HEADERS)
    def test_a_tombstones_headers_stay_as_they_are(self, files: SegmentFiles, fault: str) -> None:
        tombstone = {"value": None, "headers": crafted.BROKEN_HEADERS[fault]}
        files.segment(crafted.batch([crafted.record(**tombstone)], timestamp=NOW_MS))
        assert files.clean().unreadable_batches == 0
        ((header, content),) = files.batches()
        assert header.delete_horizon_ms == NOW_MS + DAY_MS
        assert content[HEADER_BYTES:] == crafted.record(**tombstone, timestamp_delta=-DAY_MS)

    @pytest.mark.parametrize("value", [b"value", None])
    def test_timestamps_wrap_as_in_other_languages(self, files: SegmentFiles, value: bytes | None) -> None:
        records = [
            crafted.record(0, timestamp_delta=5, key=b"gone"),
            crafted.record(1, timestamp_delta=6, value=value),
            crafted.record(2, timestamp_delta=7, key=b"gone"),
        ]
        files.segment(crafted.batch(records, count=3, timestamp=crafted.LAST_TIMESTAMP, max_timestamp=NOW_MS))
        files.segment(batch(3, (b"gone", b"value")))
        files.clean()
        header, content = next(files.batches())
        assert header.max_timestamp == -1
        assert [record.timestamp for record in iterate_records(content)] == [-(2**63) + 5]

    def test_a_length_below_null_is_null(self, files: SegmentFiles) -> None:
        tombstone = crafted.field(b"\0\0\0" + crafted.field(b"key") + crafted.varint(-2) + b"\0")
        files.segment(crafted.batch([tombstone]))
        files.clean()
        assert files.headers()[0].delete_horizon_ms == NOW_MS + DAY_MS


def test_a_job_survives_its_json(files: SegmentFiles) -> None:
    files.segment(batch(0, (b"a", b"1")))
    job = files.job(producers=[(4, 100)])
    assert Job.from_json(job.to_json()) == job


def test_batches_larger_than_one_read_are_cleaned(files: SegmentFiles) -> None:
    files.segment(
        batch(0, (b"a", b"x" * 1_500_000)),
        batch(1, (b"b", b"y" * 700_000)),
        batch(2, (b"a", b"z" * 3_000_000), (b"c", b"")),
    )
    files.clean()
    assert [record.offset for record in files.records()] == [1, 2, 3]
