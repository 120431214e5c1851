"""Rate of produce requests with one record each.

A client library would spend more on such a request than either broker, so the requests are prepared frames,
sent in a pipeline.
"""

from itertools import repeat

from benchmarks.loads.clients import pipelining, raw
from benchmarks.loads.clients.pipelining import BLOCK, Pipeline
from benchmarks.target import Target


def pipelined(
    target: Target, *, topic: str, partitions: int, requests: int, record_bytes: int, connections: int
) -> dict[str, float]:
    """Send `requests` one-record requests over several connections, each to its own partition."""
    blocks = requests // (connections * BLOCK)
    value = b"x" * record_bytes
    pipelines = [_open(target, topic, number % partitions, value, blocks) for number in range(connections)]
    with target.measured() as spent:
        pipelining.run(pipelines)
    done = connections * blocks * BLOCK
    return {
        "requests/s": done / spent.seconds,
        "broker CPU µs/request": spent.broker_cpu_seconds / done * 1e6,
    }


def _open(target: Target, topic: str, partition: int, value: bytes, blocks: int) -> Pipeline:
    connection = raw.connect(target.bootstrap)
    frame = raw.produce_frame(topic, partition, [value])
    connection.sendall(frame)
    response = raw.read_frame(connection)
    return Pipeline(
        connection,
        blocks=repeat(frame * BLOCK, blocks),
        requests_left=blocks * BLOCK,
        response_bytes=4 + len(response),
        # After length prefix, correlation id, topic count, topic name, partition count and partition.
        error_position=4 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4,
    )
