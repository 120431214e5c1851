"""Requests per second when every request carries one record.

A client library would spend more on such a request than either broker does, so the requests are made
beforehand and pipelined.
"""

from itertools import repeat

from benchmarks import pipeline, raw
from benchmarks.pipeline import BLOCK, Pipeline
from benchmarks.target import Target


def pipelined(
    target: Target, *, topic: str, partitions: int, requests: int, record_bytes: int, connections: int
) -> dict[str, float]:
    """Send `requests` one-record requests over several connections, each to its own partition."""
    blocks = requests // (connections * BLOCK)
    value = b"x" * record_bytes
    pipelines = [_open(target, topic, number % partitions, value, blocks) for number in range(connections)]
    with target.measured() as spent:
        pipeline.run(pipelines)
    answered = connections * blocks * BLOCK
    return {
        "requests/s": answered / spent.seconds,
        "broker CPU µs/request": spent.broker_cpu_seconds / answered * 1e6,
    }


def _open(target: Target, topic: str, partition: int, value: bytes, blocks: int) -> Pipeline:
    connection = raw.connect(target.bootstrap)
    frame = raw.produce_frame(topic, partition, [value])
    connection.sendall(frame)
    answer = raw.read_frame(connection)
    return Pipeline(
        connection,
        blocks=repeat(frame * BLOCK, blocks),
        requests_to_answer=blocks * BLOCK,
        answer_bytes=4 + len(answer),
        # Length prefix, correlation id, topic count, topic name, partition count, partition: then the error.
        error_position=4 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4,
    )
