"""Offset commits of many groups and partitions, which fill a log."""

from collections.abc import Iterator

import uvloop

from benchmarks.loads.clients import pipelining, raw
from benchmarks.loads.clients.pipelining import BLOCK
from benchmarks.loads.groups.commits import commit_pipeline
from benchmarks.loads.groups.coordinators import await_coordinators, connect
from benchmarks.target import Target

NO_MEMBER, NO_GENERATION = "", -1


def group_name(number: int) -> str:
    return f"group-{number:05d}"


def committed(
    target: Target, *, topic: str, commits: int, groups: int, partitions: int, connections: int
) -> dict[str, float]:
    """Commit for one group after the other and, for each group, one partition after the other."""
    blocks = commits // (connections * BLOCK)

    def frames(connection: int) -> Iterator[bytes]:
        number = connection
        for _ in range(blocks):
            block = []
            for _ in range(BLOCK):
                group, partition = group_name(number % groups), number // groups % partitions
                block.append(
                    raw.offset_commit_frame(group, NO_MEMBER, NO_GENERATION, topic, partition, number)
                )
                number += connections
            yield b"".join(block)

    uvloop.run(_prepare(target, groups))
    first = raw.offset_commit_frame(group_name(0), NO_MEMBER, NO_GENERATION, topic, 0, 0)
    pipelines = [
        commit_pipeline(target, first, frames(number), blocks * BLOCK) for number in range(connections)
    ]
    with target.measured() as spent:
        pipelining.run(pipelines)
    return {"commits/s": connections * blocks * BLOCK / spent.seconds}


async def _prepare(target: Target, groups: int) -> None:
    connection = await connect(target.bootstrap)
    await await_coordinators(connection, map(group_name, range(groups)))
    connection.close()
