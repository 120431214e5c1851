"""Apache Kafka's own dump-log tool reads our files and finds nothing wrong with them."""

import re
import subprocess
from pathlib import Path

import pytest

from millrace.config import LogConfig
from millrace.jars import JarsUnavailable, apache_kafka_classpath, java
from millrace.storage.log import Log
from millrace.wire.compression import Codec
from millrace.wire.records import Record, build_batch

pytestmark = pytest.mark.java

# What the tool says of files it does not like. It calls the first offset of any segment but the log's first
# non-consecutive to -1, whichever broker wrote it.
COMPLAINT = re.compile(
    r"mismatch|isvalid: false|corrupt|out of order|not found|exception|^ +\d+ is followed by", re.I | re.M
)


@pytest.fixture(scope="module")
def dump():
    """Runs the tool over files and returns what it prints."""
    try:
        command = [str(java()), "-cp", apache_kafka_classpath(), "org.apache.kafka.tools.DumpLogSegments"]
    except JarsUnavailable as missing:
        pytest.skip(str(missing))

    def run(files: list[Path], *flags: str) -> str:
        arguments = ["--files", ",".join(map(str, files)), *flags]
        done = subprocess.run([*command, *arguments], check=False, capture_output=True, text=True)
        return done.stdout + "".join(
            line for line in done.stderr.splitlines(keepends=True) if not line.startswith("SLF4J")
        )

    return run


@pytest.fixture
def log(open_log, clock) -> Log:
    """Several segments with every codec, an idempotent producer and timestamps that go back and forth."""
    log = open_log(LogConfig(segment_bytes=20_000, index_interval_bytes=500))
    sequence = 0
    for number in range(300):
        clock.advance(10 if number % 7 else -30)
        records = [
            Record(place, clock.now_ms() + place, b"key-%d" % place, b"value %d" % number * 5, (("h", b"x"),))
            for place in range(number % 4 + 1)
        ]
        batch = build_batch(
            records, codec=Codec(number % 5), producer_id=7, producer_epoch=1, base_sequence=sequence
        )
        log.append(memoryview(batch), leader_epoch=number // 100)
        sequence += len(records)
    return log


def files_of(log: Log, *suffixes: str) -> list[Path]:
    return sorted(path for path in log.directory.iterdir() if path.suffix in suffixes)


def test_closed_segments_and_indexes_are_verified(log, dump):
    log.close()
    files = files_of(log, ".log", ".index", ".timeindex", ".snapshot")
    assert len(files) == 3 * len(log.segments) + 3
    output = dump(files, "--deep-iteration", "--print-data-log")
    assert not COMPLAINT.search(output)
    offsets = [int(offset) for offset in re.findall(r"^\| offset: (\d+)", output, re.M)]
    assert offsets == list(range(log.log_end_offset))
    assert output.count("isvalid: true") == 300
    assert "producerId: 7 producerEpoch: 1" in output
    for flag in ("--verify-index-only", "--index-sanity-check"):
        assert not COMPLAINT.search(dump(files_of(log, ".index", ".timeindex"), flag))


def test_recovered_segments_and_indexes_are_verified(log, open_log, dump):
    log.abandon()
    path = log.segments[-1].path(".log")
    path.write_bytes(path.read_bytes()[:-3])
    recovered = open_log(log.config)
    recovered.close()
    output = dump(files_of(recovered, ".log", ".index", ".timeindex", ".snapshot"), "--deep-iteration")
    assert not COMPLAINT.search(output)
    assert output.count("isvalid: true") == 299


def test_the_tool_does_complain_about_a_wrong_index(log, dump):
    log.close()
    index = log.segments[0].path(".index")
    index.write_bytes(index.read_bytes()[:-4] + b"\0\0\0\1")
    assert COMPLAINT.search(dump([index]))
