"""Apache Kafka's dump tool reads and verifies compacted segments and their indexes."""

import random
import re
from pathlib import Path

import pytest

from millrace.disk import Disk
from millrace.storage import swap
from millrace.storage.compaction import Compaction, Job, Source
from millrace.testing.apache_kafka import run_tool
from millrace.wire.compression import Codec
from millrace.wire.records import Record, build_batch

pytestmark = pytest.mark.java

NOW_MS = 1_700_000_000_000
SEGMENTS = 4
BATCHES = 40
RECORDS = 20


def write_segments(directory: Path) -> list[Source]:
    """Segments whose batches take turns in codecs, with tombstones and producers among them."""
    chance = random.Random(11)
    sources = []
    offset = 0
    for _ in range(SEGMENTS):
        base_offset, batches = offset, []
        for _ in range(BATCHES):
            records = [
                Record(
                    offset + delta,
                    NOW_MS + offset + delta,
                    b"key-%d" % chance.randrange(900),
                    None if chance.random() < 0.2 else chance.randbytes(100),
                    (("header", b"value"),),
                )
                for delta in range(RECORDS)
            ]
            codec = Codec(offset // RECORDS % len(Codec))
            batches.append(
                build_batch(records, codec=codec, producer_id=3, producer_epoch=0, base_sequence=offset)
            )
            offset += RECORDS
        path = directory / f"{base_offset:020d}.log"
        path.write_bytes(b"".join(batches))
        sources.append(Source(base_offset, path.stat().st_size, 0, 0))
    return sources


def test_dump_log_verifies_compacted_segments(tmp_path: Path) -> None:
    sources = write_segments(tmp_path)
    end_offset = SEGMENTS * BATCHES * RECORDS
    job = Job(
        directory=str(tmp_path),
        segments=sources,
        first_dirty_offset=0,
        first_uncleanable_offset=end_offset,
        segment_bytes=sources[0].size + 20_000,
        segment_index_bytes=10 << 20,
        index_interval_bytes=512,
        delete_retention_ms=86_400_000,
        max_keys=10_000,
        max_bytes_per_second=1e300,
        now_ms=NOW_MS,
        producers=[(3, end_offset - 1)],
    )
    compaction = Compaction(job)
    for replacement in compaction.run():
        swap.stage(tmp_path, replacement.base_offset, Disk())
        for path in swap.put_in_place(tmp_path, replacement.base_offset, replacement.replaces, Disk()):
            path.unlink()
    assert 1 < len(list(tmp_path.glob("*.log"))) < SEGMENTS
    files = [path for path in sorted(tmp_path.iterdir()) if path.suffix in {".log", ".index", ".timeindex"}]

    dump = run_tool(
        "org.apache.kafka.tools.DumpLogSegments", ["--deep-iteration", "--files", ",".join(map(str, files))]
    )
    assert dump.returncode == 0, dump.stdout + dump.stderr
    complaints = r"mismatch|not found|corrupt|isvalid: false|out of order"
    assert not re.search(complaints, dump.stdout + dump.stderr, re.IGNORECASE), dump.stdout[-3000:]
    offsets = [int(offset) for offset in re.findall(r"^\| offset: (\d+) ", dump.stdout, re.MULTILINE)]
    assert len(offsets) == compaction.done.records_kept == compaction.done.keys
    assert offsets == sorted(offsets)
    assert f"deleteHorizonMs: OptionalLong[{NOW_MS + 86_400_000}]" in dump.stdout
