import struct
from pathlib import Path

import pytest

from millrace.wire.codec import encode
from millrace.wire.messages.group_records import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from millrace.wire.records import CONTROL_BIT, TRANSACTIONAL_BIT, Record, build_batch

from .conftest import Run

LOG = f"{0:020d}.log"


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """Two batches of two records each."""
    first = build_batch(
        [Record(0, 1000, b"k", b"v", (("h", b"x"),)), Record(1, 1001, None, None)], leader_epoch=0
    )
    second = build_batch(
        [Record(2, 1002, b"\xff", b"w"), Record(3, 999, b"", b"")],
        leader_epoch=3,
        producer_id=7,
        producer_epoch=1,
        base_sequence=10,
    )
    path = tmp_path / LOG
    path.write_bytes(first + second)
    return path


def lines(run_alone: Run, *arguments: object) -> list[str]:
    result = run_alone("dump-log", *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_batches_are_printed_in_kafkas_layout(run_alone: Run, segment: Path) -> None:
    head, start, first, second = lines(run_alone, "--files", segment)
    assert head == f"Dumping {segment}"
    assert start == "Log starting offset: 0"
    assert first.startswith(
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1"
        " producerEpoch: -1 partitionLeaderEpoch: 0 isTransactional: false isControl: false"
        " deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 1001 size: "
    )
    assert (
        " baseSequence: 10 lastSequence: 11 producerId: 7 producerEpoch: 1 partitionLeaderEpoch: 3 " in second
    )
    assert " magic: 2 compresscodec: none crc: " in second
    assert second.endswith(" isvalid: true")


def test_records_are_printed_with_or_without_their_metadata(run_alone: Run, segment: Path) -> None:
    records = lines(run_alone, "--files", segment, "--print-data-log")
    not_text = "key: \N{REPLACEMENT CHARACTER} payload: w"
    assert [line for line in records if line.startswith("|")] == [
        "| offset: 0 CreateTime: 1000 keySize: 1 valueSize: 1 sequence: -1 headerKeys: [h] key: k payload: v",
        "| offset: 1 CreateTime: 1001 keySize: -1 valueSize: -1 sequence: -1 headerKeys: []",
        f"| offset: 2 CreateTime: 1002 keySize: 1 valueSize: 1 sequence: 10 headerKeys: [] {not_text}",
        "| offset: 3 CreateTime: 999 keySize: 0 valueSize: 0 sequence: 11 headerKeys: [] key:  payload: ",
    ]
    short = lines(run_alone, "--files", segment, "--print-data-log", "--skip-record-metadata")
    assert short[3] == "| key: k payload: v"
    assert short[4] == ""
    assert "payload" not in " ".join(lines(run_alone, "--files", segment, "--deep-iteration"))


def test_a_damaged_batch_and_a_torn_end_are_reported(run_alone: Run, segment: Path) -> None:
    content = bytearray(segment.read_bytes())
    content[70] ^= 1
    segment.write_bytes(content + b"torn")
    output = lines(run_alone, "--files", segment)
    assert output[2].endswith("isvalid: false")
    assert output[3].endswith("isvalid: true")
    assert output[-1] == f"Found 4 invalid bytes at the end of {LOG}"


def test_only_the_first_bytes_can_be_read(run_alone: Run, segment: Path) -> None:
    assert len(lines(run_alone, "--files", segment, "--max-bytes", 100)) == 3


def test_an_empty_segment_is_not_an_error(run_alone: Run, tmp_path: Path) -> None:
    path = tmp_path / LOG
    path.touch()
    assert lines(run_alone, "--files", path) == [f"Dumping {path}", "Log starting offset: 0"]


def test_gaps_between_offsets_are_reported(run_alone: Run, tmp_path: Path) -> None:
    path = tmp_path / LOG
    path.write_bytes(build_batch([Record(0, 1, None, b"a"), Record(5, 1, None, b"b")]))
    result = run_alone("dump-log", "--files", path, "--deep-iteration")
    assert result.stderr == f"Non-consecutive offsets in {path}\n  0 is followed by 5\n"


def test_markers_of_transactions_are_read(run_alone: Run, tmp_path: Path) -> None:
    marker = Record(0, 1, struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 5))
    path = tmp_path / LOG
    path.write_bytes(build_batch([marker], attributes=CONTROL_BIT | TRANSACTIONAL_BIT))
    assert lines(run_alone, "--files", path, "--print-data-log")[3].endswith(
        "headerKeys: [] endTxnMarker: COMMIT coordinatorEpoch: 5"
    )


def test_records_of_consumer_offsets_are_decoded(run_alone: Run, tmp_path: Path) -> None:
    commit = encode(OffsetCommitKey(group="g", topic="t", partition=2), 0)
    value = encode(OffsetCommitValue(offset=9, leader_epoch=1, metadata="m", commit_timestamp=8), 3)
    group = encode(GroupMetadataKey(group="g"), 0)
    records = [
        Record(0, 1, struct.pack(">h", 1) + commit, struct.pack(">h", 3) + value),
        Record(1, 1, struct.pack(">h", 2) + group, None),
        Record(2, 1, struct.pack(">h", 99), b"?"),
    ]
    path = tmp_path / LOG
    path.write_bytes(build_batch(records))
    committed_key = '{"type":"1","data":{"group":"g","topic":"t","partition":2}}'
    committed = '{"version":"3","data":{"offset":9,"leaderEpoch":1,"metadata":"m","commitTimestamp":8}}'
    assert lines(run_alone, "--files", path, "--offsets-decoder", "--skip-record-metadata")[3:] == [
        f"| key: {committed_key} payload: {committed}",
        '| key: {"type":"2","data":{"group":"g"}} payload: <DELETE>',
        '| key: {"type":"99","data":"unknown"} payload: ?',
    ]


def write_indexes(segment: Path, second_position: int) -> tuple[Path, Path]:
    offsets, times = segment.with_suffix(".index"), segment.with_suffix(".timeindex")
    offsets.write_bytes(struct.pack(">iiii", 3, second_position, 0, 0))
    times.write_bytes(struct.pack(">qiqi", 1002, 3, 0, 0))
    return offsets, times


def second_position(segment: Path) -> int:
    (length,) = struct.unpack_from(">i", segment.read_bytes(), 8)
    return int(length) + 12


def test_indexes_are_printed_up_to_the_trailing_zeros(run_alone: Run, segment: Path) -> None:
    position = second_position(segment)
    offsets, times = write_indexes(segment, position)
    result = run_alone("dump-log", "--files", f"{offsets},{times}")
    assert result.stderr == ""
    assert result.stdout.splitlines() == [
        f"Dumping {offsets}",
        f"offset: 3 position: {position}",
        f"Dumping {times}",
        "timestamp: 1002 offset: 3",
    ]
    assert lines(run_alone, "--files", offsets, "--verify-index-only") == [f"Dumping {offsets}"]


def test_an_index_that_does_not_match_its_segment_is_reported(run_alone: Run, segment: Path) -> None:
    offsets, times = write_indexes(segment, 0)
    times.write_bytes(struct.pack(">qiqiqi", 5000, 3, 4000, 3, 6000, 2))
    result = run_alone("dump-log", "--files", f"{offsets},{times}", "--verify-index-only")
    assert result.stderr.splitlines() == [
        f"Mismatches in :{offsets}",
        "  Index offset: 3, log offset: 1",
        f"Found timestamp mismatch in :{times}",
        "  Index timestamp: 5000, log timestamp: 1002",
        "  Index timestamp: 4000, log timestamp: 1002",
        f"Found out of order timestamp in :{times}",
        "  Index timestamp: 4000, Previously indexed timestamp: 5000",
        "The following indexed offsets are not found in the log.",
        "  Indexed offset: 2, found log offset: 3",
    ]


def test_the_sanity_of_indexes_is_checked(run_alone: Run, segment: Path) -> None:
    offsets = segment.with_suffix(".index")
    offsets.write_bytes(struct.pack(">iiii", 1, 0, 3, 100))
    assert (
        lines(run_alone, "--files", offsets, "--index-sanity-check")[1] == f"{offsets} passed sanity check."
    )
    offsets.write_bytes(b"123")
    result = run_alone("dump-log", "--files", offsets, "--index-sanity-check")
    assert result.exit_code == 1
    assert "Corrupt index found" in result.stderr


def test_aborted_transactions_are_printed(run_alone: Run, tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.txnindex"
    path.write_bytes(struct.pack(">hqqqq", 0, 11, 5, 6, 7))
    assert lines(run_alone, "--files", path)[1] == (
        "version: 0 producerId: 11 firstOffset: 5 lastOffset: 6 lastStableOffset: 7"
    )


def test_the_brokers_own_files_are_valid(run: Run, run_alone: Run, broker: object, topic: str) -> None:
    from millrace.testing import Broker

    assert isinstance(broker, Broker)
    run("topics", "--create", "--topic", topic, "--config", "segment.bytes=1048576")
    run(
        *("producer-perf-test", "--topic", topic, "--num-records", 3000, "--record-size", 1000),
        *("--throughput", -1, "--producer-props", "enable.idempotence=true", "batch.size=16384"),
    )
    files = sorted((broker.data_dir / f"{topic}-0").glob("0*.*"))
    assert {file.suffix for file in files} >= {".log", ".snapshot"}
    result = run_alone(
        "dump-log", "--files", ",".join(map(str, files)), "--deep-iteration", "--verify-index-only"
    )
    assert result.exit_code == 0
    assert result.stderr == ""
    assert "isvalid: false" not in result.stdout
    assert "firstSequence: " in result.stdout


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("00.log", "there is no file"),
        ("names.log", "named by its first offset"),
        ("0.index", "put it beside"),
    ],
)
def test_a_file_that_cannot_be_dumped_is_named(
    run_alone: Run, tmp_path: Path, name: str, message: str
) -> None:
    if name != "00.log":
        (tmp_path / name).write_bytes(struct.pack(">ii", 1, 1))
    result = run_alone("dump-log", "--files", tmp_path / name)
    assert result.exit_code == 1
    assert message in result.stderr


def test_other_files_are_ignored(run_alone: Run, tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.touch()
    assert run_alone("dump-log", "--files", path).stderr == f"Ignoring unknown file {path}\n"


def test_decoders_of_unsupported_topics_are_rejected(run_alone: Run) -> None:
    assert (
        "is not supported" in run_alone("dump-log", "--files", "x.log", "--cluster-metadata-decoder").stderr
    )
