"""One file per load; each runs in a process of its own, `python -m benchmarks.loads`."""

from collections.abc import Callable

from benchmarks.loads import acknowledgement, consume, end_to_end, idle, one_message, produce, seek
from benchmarks.loads.groups import (
    commits,
    first_record,
    many_groups,
    membership,
    offsets,
    takeover,
    transactions,
)
from benchmarks.target import Target

Load = Callable[..., dict[str, float]]

LOADS: dict[str, Load] = {
    "ack-latency": acknowledgement.latency,
    "classic-members": membership.classic,
    "commit-latency": commits.latency,
    "commit-offsets": offsets.committed,
    "commits": commits.throughput,
    "consume": consume.throughput,
    "catch-up": consume.catch_up,
    "consumer-members": membership.consumer,
    "end-to-end": end_to_end.latency,
    "fetch-anywhere": seek.fetch_cost,
    "fill": produce.filled,
    "first-record": first_record.after_joining,
    "groups": many_groups.created,
    "idle-connections": idle.connections,
    "one-message": one_message.pipelined,
    "produce": produce.throughput,
    "takeover": takeover.after_death,
    "transactions": transactions.throughput,
}

__all__ = ["LOADS", "Load", "Target"]
