"""Offset commits by members of groups: rate and latency."""

import time
from collections.abc import Iterator
from itertools import repeat

import uvloop

from benchmarks.loads.clients import pipelining, raw
from benchmarks.loads.clients.pipelining import BLOCK, BLOCKS_IN_FLIGHT, Pipeline
from benchmarks.loads.groups import classic_member
from benchmarks.loads.groups.classic_member import ClassicMember
from benchmarks.loads.groups.coordinators import await_coordinators, connect
from benchmarks.loads.groups.settings import new_group
from benchmarks.loads.latency import measure_latency
from benchmarks.target import Target


def throughput(
    target: Target, *, topic: str, commits: int, connections: int, block: int, blocks_in_flight: int
) -> dict[str, float]:
    """Commit offsets of one partition over several connections, each for its own group."""
    blocks = commits // (connections * block)
    members = uvloop.run(_join(target, topic, connections))
    frames = [
        raw.offset_commit_frame(group, member.member_id, member.generation, topic, 0, 1)
        for group, member in members.items()
    ]
    pipelines = [
        commit_pipeline(
            target,
            frame,
            repeat(frame * block, blocks),
            blocks * block,
            block=block,
            blocks_in_flight=blocks_in_flight,
        )
        for frame in frames
    ]
    with target.measured() as spent:
        pipelining.run(pipelines)
    uvloop.run(_leave(target, members))
    done = connections * blocks * block
    return {
        "commits/s": done / spent.seconds,
        "broker CPU µs/commit": spent.broker_cpu_seconds / done * 1e6,
    }


def latency(target: Target, *, topic: str, samples: int) -> dict[str, float]:
    """Commit one offset at a time."""
    members = uvloop.run(_join(target, topic, 1))
    ((group, member),) = members.items()
    with raw.connect(target.bootstrap) as connection:
        committed = 0

        def one_commit() -> float:
            nonlocal committed
            committed += 1
            frame = raw.offset_commit_frame(group, member.member_id, member.generation, topic, 0, committed)
            started = time.perf_counter_ns()
            connection.sendall(frame)
            response = raw.read_frame(connection)
            ended = time.perf_counter_ns()
            raw.check_offset_commit(response)
            return (ended - started) / 1e6

        figures = measure_latency(target, one_commit, samples)
    uvloop.run(_leave(target, members))
    return figures


async def _join(target: Target, topic: str, count: int) -> dict[str, ClassicMember]:
    """Create groups with one member each."""
    connection = await connect(target.bootstrap)
    members = {}
    groups = [new_group() for _ in range(count)]
    await await_coordinators(connection, groups)
    for group in groups:
        members[group] = ClassicMember(connection, group, topic)
        await members[group].join()
    connection.close()
    return members


async def _leave(target: Target, members: dict[str, ClassicMember]) -> None:
    connection = await connect(target.bootstrap)
    for group, member in members.items():
        await classic_member.leave(connection, group, [member.member_id])
    connection.close()


def commit_pipeline(
    target: Target,
    first: bytes,
    blocks: Iterator[bytes],
    commits: int,
    *,
    block: int = BLOCK,
    blocks_in_flight: int = BLOCKS_IN_FLIGHT,
) -> Pipeline:
    """Open a connection for commits with the size of the first one, which it has sent already."""
    connection = raw.connect(target.bootstrap)
    connection.sendall(first)
    response = raw.read_frame(connection)
    raw.check_offset_commit(response)
    response_bytes = 4 + len(response)
    return Pipeline(
        connection,
        blocks,
        commits,
        response_bytes,
        error_position=response_bytes - 2,
        block=block,
        blocks_in_flight=blocks_in_flight,
    )
