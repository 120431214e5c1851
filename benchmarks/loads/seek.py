"""Cost of a fetch at any offset of a log, read through a raw connection."""

import random
import socket
import struct
import time

from benchmarks import raw
from benchmarks.percentiles import percentile
from benchmarks.target import Target

SEED = 1


def fetch_cost(
    target: Target, *, topic: str, offsets: int, places: int, fetches: int, max_bytes: int
) -> dict[str, float]:
    """Fetch from random offsets below `offsets`, twice the same: the first pass brings them into memory.

    There are so many `places` of them, in every log, that the processor's caches hold as much of each.
    """
    chosen = random.Random(SEED)
    asked = [raw.fetch_frame(topic, 0, chosen.randrange(offsets), max_bytes) for _ in range(places)]
    frames = chosen.choices(asked, k=fetches)
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
    answer = raw.read_frame(connection)
    # Correlation id, throttle time, topic count, topic name, partition count, partition: then the error.
    (name_bytes,) = struct.unpack_from(">h", answer, 12)
    (error,) = struct.unpack_from(">h", answer, 14 + name_bytes + 8)
    if error:
        raise RuntimeError(f"the fetch was answered with error {error}")
