"""Apache Kafka's dump tool reads markers, transaction indexes and snapshots of open transactions."""

import random
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from millrace.cli.dump_log import command
from millrace.config import LogConfig
from millrace.storage.log import Log
from millrace.testing.apache_kafka import run_tool

from ..transactional import TransactionalProducer

pytestmark = pytest.mark.java


@pytest.fixture
def log(open_log, clock) -> Log:
    """A few segments of interleaved transactions, some of them still open at the end."""
    chance = random.Random(7)
    log = open_log(LogConfig(segment_bytes=4000, index_interval_bytes=300))
    producers = [TransactionalProducer(log, clock, producer_id) for producer_id in range(1000, 1006)]
    while len(log.segments) < 5:
        producer = chance.choice(producers)
        producer.send(*[chance.randbytes(40) for _ in range(chance.randrange(1, 4))])
        if chance.random() < 0.3:
            producer.end(committed=chance.random() < 0.5, coordinator_epoch=3, bump=chance.random() < 0.5)
        clock.advance(1)
    for producer in producers[:3]:
        producer.abort(coordinator_epoch=3)
    log.flush()
    log._flusher.write_indexes(log, log.segments[-1].complete_indexes)
    log._flusher.take_snapshot(log)
    return log


def dump_by_kafka(*files: Path) -> str:
    dump = run_tool(
        "org.apache.kafka.tools.DumpLogSegments", ["--deep-iteration", "--files", ",".join(map(str, files))]
    )
    assert dump.returncode == 0, dump.stdout + dump.stderr
    complaints = r"mismatch|not found|corrupt|isvalid: false|out of order"
    assert not re.search(complaints, dump.stdout + dump.stderr, re.IGNORECASE), dump.stdout[-3000:]
    return dump.stdout


def dump_by_millrace(*files: Path) -> str:
    result = CliRunner().invoke(command, ["--deep-iteration", "--files", ",".join(map(str, files))])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_dump_log_verifies_segments_with_markers(log: Log) -> None:
    files = [segment.path(suffix) for segment in log.segments for suffix in (".log", ".index", ".timeindex")]
    dump = dump_by_kafka(*files)
    assert "endTxnMarker: COMMIT coordinatorEpoch: 3" in dump
    assert "endTxnMarker: ABORT coordinatorEpoch: 3" in dump
    offsets = [int(offset) for offset in re.findall(r"^\| offset: (\d+) ", dump, re.MULTILINE)]
    assert offsets == list(range(log.log_end_offset))
    assert dump_by_millrace(*files) == dump


def test_dump_log_reads_the_aborted_transactions(log: Log) -> None:
    files = sorted(log.directory.glob("*.txnindex"))
    dump = dump_by_kafka(*files)
    entries = re.findall(
        r"^version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)$",
        dump,
        re.MULTILINE,
    )
    expected = log.aborted_transactions(0, log.log_end_offset)
    assert [tuple(map(int, entry)) for entry in entries] == expected
    assert len(expected) > 3
    assert dump_by_millrace(*files) == dump


def test_dump_log_reads_the_open_transactions(log: Log) -> None:
    (newest,) = log.directory.glob(f"{log.log_end_offset:020d}.snapshot")
    dump = dump_by_kafka(newest)
    found = {
        int(producer_id): (int(epoch), first and int(first))
        for producer_id, epoch, first in re.findall(
            r"producerId: (\d+) producerEpoch: (\d+) coordinatorEpoch: -?\d+ "
            r"currentTxnFirstOffset: Optional(?:Long)?(?:\[|\.empty)(\d*)",
            dump,
        )
    }
    assert found == {
        producer.producer_id: (
            producer.epoch,
            producer.current_transaction_first_offset if producer.has_open_transaction else "",
        )
        for producer in log.active_producers()
    }
    assert any(producer.has_open_transaction for producer in log.active_producers())
