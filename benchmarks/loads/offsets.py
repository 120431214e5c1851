"""Offset commits spread over many groups and partitions, to have a log of them."""

from collections.abc import Iterator

import uvloop

from benchmarks import pipeline, raw
from benchmarks.loads.commits import commit_pipeline
from benchmarks.pipeline import BLOCK
from benchmarks.target import Target
from benchmarks.wire_client import WireClient, await_coordinators

NO_MEMBER, NO_GENERATION = "", -1


def group_name(number: int) -> str:
    return f"group-{number:05d}"


def committed(
    target: Target, *, topic: str, commits: int, groups: int, partitions: int, connections: int
) -> dict[str, float]:
    """Commit round and round the groups and, for each group, the partitions."""
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
        pipeline.run(pipelines)
    return {"commits/s": connections * blocks * BLOCK / spent.seconds}


async def _prepare(target: Target, groups: int) -> None:
    client = await WireClient.connect(target.bootstrap)
    await await_coordinators(client, map(group_name, range(groups)))
    client.close()
