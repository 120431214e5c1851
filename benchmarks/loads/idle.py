"""Many clients that are connected and idle."""

import time

from benchmarks.loads import acknowledgement
from benchmarks.loads.clients import raw
from benchmarks.machine.usage import cpu_seconds, resident_bytes
from benchmarks.target import Target


def connections(target: Target, *, topic: str, count: int, seconds: float, samples: int) -> dict[str, float]:
    """Hold `count` idle connections open, and measure their cost for the broker and for a producer."""
    alone = acknowledgement.latency(target, topic=topic, samples=samples, record_bytes=100)
    memory_before, idle_before = resident_bytes(target.pid), _idle_cpu(target.pid, seconds)
    held = []
    for _ in range(count):
        connection = raw.connect(target.bootstrap)
        connection.sendall(raw.api_versions_frame())
        raw.read_frame(connection)
        held.append(connection)
    time.sleep(1)
    memory_after, idle_after = resident_bytes(target.pid), _idle_cpu(target.pid, seconds)
    beside = acknowledgement.latency(target, topic=topic, samples=samples, record_bytes=100)
    for connection in held:
        connection.close()
    return {
        "memory, KB per connection": (memory_after - memory_before) / count / 1e3,
        "broker CPU without them, % of a core": idle_before * 100,
        "broker CPU with them, % of a core": idle_after * 100,
        "ack latency without them, p50 ms": alone["p50 ms"],
        "ack latency with them, p50 ms": beside["p50 ms"],
        "ack latency without them, p99 ms": alone["p99 ms"],
        "ack latency with them, p99 ms": beside["p99 ms"],
    }


def _idle_cpu(pid: int, seconds: float) -> float:
    before = cpu_seconds(pid)
    time.sleep(seconds)
    return (cpu_seconds(pid) - before) / seconds
