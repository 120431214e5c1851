"""Offset commits by members of groups: how many a second, and how long one takes."""

import time
from collections.abc import Iterator
from itertools import repeat

import uvloop

from benchmarks import classic_member, pipeline, raw
from benchmarks.classic_member import ClassicMember
from benchmarks.group_settings import new_group
from benchmarks.latency import measure_latency
from benchmarks.pipeline import BLOCK, BLOCKS_ON_THE_WAY, Pipeline
from benchmarks.target import Target
from benchmarks.wire_client import WireClient, await_coordinators


def throughput(
    target: Target, *, topic: str, commits: int, connections: int, block: int, blocks_on_the_way: int
) -> dict[str, float]:
    """Commits of one partition over connections, each for a group of its own."""
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
            blocks_on_the_way=blocks_on_the_way,
        )
        for frame in frames
    ]
    with target.measured() as spent:
        pipeline.run(pipelines)
    uvloop.run(_leave(target, members))
    answered = connections * blocks * block
    return {
        "commits/s": answered / spent.seconds,
        "broker CPU µs/commit": spent.broker_cpu_seconds / answered * 1e6,
    }


def latency(target: Target, *, topic: str, samples: int) -> dict[str, float]:
    """One commit at a time."""
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
            answer = raw.read_frame(connection)
            ended = time.perf_counter_ns()
            raw.check_offset_commit(answer)
            return (ended - started) / 1e6

        figures = measure_latency(target, one_commit, samples)
    uvloop.run(_leave(target, members))
    return figures


async def _join(target: Target, topic: str, count: int) -> dict[str, ClassicMember]:
    """A member in each of some new groups."""
    client = await WireClient.connect(target.bootstrap)
    members = {}
    groups = [new_group() for _ in range(count)]
    await await_coordinators(client, groups)
    for group in groups:
        members[group] = ClassicMember(client, group, topic)
        await members[group].join()
    client.close()
    return members


async def _leave(target: Target, members: dict[str, ClassicMember]) -> None:
    client = await WireClient.connect(target.bootstrap)
    for group, member in members.items():
        await classic_member.leave(client, group, [member.member_id])
    client.close()


def commit_pipeline(
    target: Target,
    first: bytes,
    blocks: Iterator[bytes],
    commits: int,
    *,
    block: int = BLOCK,
    blocks_on_the_way: int = BLOCKS_ON_THE_WAY,
) -> Pipeline:
    """A connection for commits of the size of the first, which is answered when this returns."""
    connection = raw.connect(target.bootstrap)
    connection.sendall(first)
    answer = raw.read_frame(connection)
    raw.check_offset_commit(answer)
    answer_bytes = 4 + len(answer)
    return Pipeline(
        connection,
        blocks,
        commits,
        answer_bytes,
        error_position=answer_bytes - 2,
        block=block,
        blocks_on_the_way=blocks_on_the_way,
    )
