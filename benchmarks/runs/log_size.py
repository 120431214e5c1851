"""Cost of appends and fetches with a small log and with a big one."""

import shutil
import tempfile
from collections.abc import Callable

from benchmarks.brokers import Millrace
from benchmarks.comparison import run_load
from benchmarks.target import Target

TOPIC = "growing"
RECORD_BYTES = 1000
SMALL_LOG_BYTES = 10_000_000
KEPT_FREE_BYTES = 10_000_000_000
BATCH_RECORDS = 16
APPENDS, SAMPLES, FETCHES = 100_000, 10_000, 20_000
# The number of batches in the small log.
POSITIONS = SMALL_LOG_BYTES // (RECORD_BYTES * BATCH_RECORDS)

SizedFigures = dict[str, dict[str, float]]


def affordable_bytes(wanted_gigabytes: float) -> int:
    """The wanted size, or the largest that leaves enough disk space."""
    free = shutil.disk_usage(tempfile.gettempdir()).free
    return max(SMALL_LOG_BYTES * 10, min(int(wanted_gigabytes * 1e9), free - KEPT_FREE_BYTES))


def run(gigabytes: float, announce: Callable[[str], None]) -> SizedFigures:
    """Figures of the same operations with 10 MB and with `gigabytes` of log, by size."""
    big = affordable_bytes(gigabytes)
    figures: SizedFigures = {}
    with Millrace({}) as broker:
        target = Target(broker.bootstrap, broker.pid)
        announce("warming up")
        target.create_topic("warm-up", 1)
        _measure(target, "warm-up", SMALL_LOG_BYTES)
        target.delete_topic("warm-up")
        target.create_topic(TOPIC, 1)
        for size in (SMALL_LOG_BYTES, big):
            announce(f"log of {size / 1e9:g} GB")
            figures[f"{size / 1e9:g} GB"] = _measure(target, TOPIC, size)
    return figures


def _measure(target: Target, topic: str, size: int) -> dict[str, float]:
    filled = size // RECORD_BYTES
    missing = max(0, filled - target.record_count(topic))
    fill = {"records": missing, "record_bytes": RECORD_BYTES, "batch_records": BATCH_RECORDS}
    run_load("fill", target, {"topic": topic, **fill})
    fetches = {
        "offsets": filled,
        "positions": POSITIONS,
        "fetches": FETCHES,
        "max_bytes": BATCH_RECORDS * RECORD_BYTES,
    }
    fetch = run_load("fetch-anywhere", target, {"topic": topic, **fetches})
    appends = {"requests": APPENDS, "record_bytes": 100, "connections": 8, "partitions": 1}
    append = run_load("one-message", target, {"topic": topic, **appends})
    latency = run_load("ack-latency", target, {"topic": topic, "samples": SAMPLES, "record_bytes": 100})
    return {
        "append: broker CPU, µs": append["broker CPU µs/request"],
        "append: requests/s": append["requests/s"],
        "append: acknowledgement latency, p50 ms": latency["p50 ms"],
        "append: acknowledgement latency, p99 ms": latency["p99 ms"],
        "fetch a 16 KB batch at any offset: broker CPU, µs": fetch["broker CPU µs/request"],
        "fetch a 16 KB batch at any offset: latency, p50 ms": fetch["p50 ms"],
        "fetch a 16 KB batch at any offset: latency, p99 ms": fetch["p99 ms"],
    }
