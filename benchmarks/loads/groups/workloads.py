"""The workloads of groups and transactions: load, size, and the bar of each figure."""

from benchmarks.workloads import Workload, at_least, at_most


def _first_record(protocol: str) -> Workload:
    return Workload(
        f"first-record-{protocol}",
        f"from joining to the first record, {protocol} protocol",
        "first-record",
        {"protocol": protocol, "samples": 20},
        "samples",
        1,
        {"p50 ms": at_most(1.0), "worst ms": None},
    )


def _takeover(protocol: str) -> Workload:
    return Workload(
        f"takeover-{protocol}",
        f"from a member's death to its partitions flowing again, {protocol} protocol",
        "takeover",
        {"protocol": protocol, "groups": 10},
        "groups",
        2,
        # Both wait for the same timeout; only the time after it can differ.
        {"seconds": at_most(1.05), "of that after the sessions' end, ms": None},
    )


def _members(protocol: str, partitions: int) -> Workload:
    return Workload(
        f"members-{protocol}",
        f"1,000 members join one group, {protocol} protocol",
        f"{protocol}-members",
        {"members": 1000},
        "members",
        partitions,
        {"seconds": at_most(1.0), "broker CPU s": at_most(1.0)},
    )


def _commits(name: str, title: str, *, connections: int, block: int, blocks_in_flight: int) -> Workload:
    bars = {"commits/s": at_least(1.0), "broker CPU µs/commit": at_most(1.0)}
    parameters = {
        "commits": 100_000,
        "connections": connections,
        "block": block,
        "blocks_in_flight": blocks_in_flight,
    }
    return Workload(name, f"offset commits, {title}", "commits", parameters, "commits", 1, bars)


def _transactions(name: str, title: str, **parameters: int) -> Workload:
    return Workload(
        name,
        title,
        "transactions",
        parameters,
        "transactions",
        6,
        {"transactions/s": at_least(1.0), "broker CPU µs/transaction": at_most(0.5)},
    )


GROUP_WORKLOADS = (
    _first_record("classic"),
    _first_record("consumer"),
    _takeover("classic"),
    _takeover("consumer"),
    _members("classic", 1),
    _members("consumer", 1000),
    Workload(
        "groups",
        "10,000 groups with a member and an offset each",
        "groups",
        {"groups": 10_000},
        "groups",
        1,
        {
            "seconds": at_most(1.0),
            "broker CPU s": at_most(1.0),
            "broker resident, MB": at_most(0.5),
            "list them, ms": None,
        },
    ),
    _commits(
        "commits-closed",
        "32 members with one under way each",
        connections=32,
        block=1,
        blocks_in_flight=1,
    ),
    _commits("commits", "pipelined over one connection", connections=1, block=64, blocks_in_flight=2),
    _commits("commits-32", "pipelined over 32 connections", connections=32, block=64, blocks_in_flight=2),
    Workload(
        "commit-latency",
        "offset commit latency, one at a time",
        "commit-latency",
        {"samples": 5000},
        "samples",
        1,
        {"p50 ms": at_most(1.0), "p99 ms": at_most(1.0), "broker CPU µs each": None},
    ),
    _transactions(
        "transactions-1",
        "transactions of one record, one producer",
        transactions=500,
        records=1,
        producers=1,
    ),
    _transactions(
        "transactions-1-by-4",
        "transactions of one record, 4 producers",
        transactions=2000,
        records=1,
        producers=4,
    ),
    _transactions(
        "transactions-100",
        "transactions of 100 records, one producer",
        transactions=500,
        records=100,
        producers=1,
    ),
    _transactions(
        "transactions-100-by-4",
        "transactions of 100 records, 4 producers",
        transactions=1000,
        records=100,
        producers=4,
    ),
)
