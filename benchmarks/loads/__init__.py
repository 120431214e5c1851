"""One file per load; each runs in a process of its own, `python -m benchmarks.loads`."""

from collections.abc import Callable

from benchmarks.loads import consume, end_to_end, idle, one_message, one_record, produce, seek
from benchmarks.target import Target

Load = Callable[..., dict[str, float]]

LOADS: dict[str, Load] = {
    "ack-latency": one_record.acknowledgement_latency,
    "consume": consume.throughput,
    "end-to-end": end_to_end.latency,
    "fetch-anywhere": seek.fetch_cost,
    "idle-connections": idle.connections,
    "one-message": one_message.pipelined,
    "produce": produce.throughput,
}

__all__ = ["LOADS", "Load", "Target"]
