"""Cost of a fetch at any offset of a log, over a raw connection."""

import random
import socket
import struct
import time

from benchmarks.loads.clients import raw
from benchmarks.loads.latency import percentile
from benchmarks.target import Target

SEED = 1


def fetch_cost(
    target: Target, *, topic: str, offsets: int, positions: int, fetches: int, max_bytes: int
) -> dict[str, float]:
    """Fetch from random offsets below `offsets`, in two passes: the first one loads them into memory.

    The number of different offsets, `positions`, is the same for every log, and so is the use of caches.
    """
    chosen = random.Random(SEED)
    distinct = [raw.fetch_frame(topic, 0, chosen.randrange(offsets), max_bytes) for _ in range(positions)]
    frames = chosen.choices(distinct, k=fetches)
    with raw.connect(target.bootstrap) as connection:
        for frame in frames:
            _fetch(connection, frame)
        milliseconds: list[float] = []
        with target.measured() as spent:
            for frame in frames:
                started = time.perf_counter_ns()
                _fetch(connection, frame)
                milliseconds.append((time.perf_counter_ns() - started) / 1e6)
    return {
        "p50 ms": percentile(milliseconds, 50),
        "p99 ms": percentile(milliseconds, 99),
        "broker CPU µs/request": spent.broker_cpu_seconds / fetches * 1e6,
    }


def _fetch(connection: socket.socket, frame: bytes) -> None:
    connection.sendall(frame)
    response = raw.read_frame(connection)
    # After correlation id, throttle time, topic count, topic name, partition count and partition.
    (name_bytes,) = struct.unpack_from(">h", response, 12)
    (error,) = struct.unpack_from(">h", response, 14 + name_bytes + 8)
    if error:
        raise RuntimeError(f"the fetch failed with error {error}")
