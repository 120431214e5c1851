"""Requests per second when every request carries one record.

A client library would spend more on such a request than either broker does, so the requests are made
beforehand: each connection sends a block of identical Produce frames with one write, keeps two blocks on
their way, and counts the answers by their bytes (they are all of one size), checking every error code.
"""

import selectors
import socket
from dataclasses import dataclass

from benchmarks import raw
from benchmarks.target import Target

BLOCK = 64
BLOCKS_ON_THE_WAY = 2


@dataclass(slots=True)
class Pipeline:
    """One connection that is never without requests under way."""

    connection: socket.socket
    block: bytes
    answer_bytes: int
    error_position: int
    blocks_to_send: int
    requests_to_answer: int
    received: bytearray

    def send_block(self) -> None:
        if self.blocks_to_send:
            self.blocks_to_send -= 1
            self.connection.sendall(self.block)

    def take_answers(self) -> None:
        """Consume whole blocks of answers and replace each by a new block of requests."""
        chunk = self.connection.recv(1 << 16)
        if not chunk:
            raise ConnectionError("the broker closed a connection")
        self.received += chunk
        block_bytes = self.answer_bytes * BLOCK
        while len(self.received) >= block_bytes:
            self._check_errors(block_bytes)
            del self.received[:block_bytes]
            self.requests_to_answer -= BLOCK
            self.send_block()

    def _check_errors(self, block_bytes: int) -> None:
        for position in (self.error_position, self.error_position + 1):
            if any(self.received[position : block_bytes : self.answer_bytes]):
                raise RuntimeError("the broker answered with an error")


def pipelined(
    target: Target, *, topic: str, partitions: int, requests: int, record_bytes: int, connections: int
) -> dict[str, float]:
    """Send `requests` one-record requests over several connections, each to its own partition."""
    blocks = requests // (connections * BLOCK)
    value = b"x" * record_bytes
    pipelines = [_open(target, topic, number % partitions, value, blocks) for number in range(connections)]
    with target.measured() as spent:
        _run(pipelines)
    answered = connections * blocks * BLOCK
    for pipeline in pipelines:
        pipeline.connection.close()
    return {
        "requests/s": answered / spent.seconds,
        "broker CPU µs/request": spent.broker_cpu_seconds / answered * 1e6,
    }


def _open(target: Target, topic: str, partition: int, value: bytes, blocks: int) -> Pipeline:
    connection = raw.connect(target.bootstrap)
    frame = raw.produce_frame(topic, partition, [value])
    connection.sendall(frame)
    answer = raw.read_frame(connection)
    # Length prefix, correlation id, topic count, topic name, partition count, partition: then the error.
    error_position = 4 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4
    return Pipeline(
        connection=connection,
        block=frame * BLOCK,
        answer_bytes=4 + len(answer),
        error_position=error_position,
        blocks_to_send=blocks,
        requests_to_answer=blocks * BLOCK,
        received=bytearray(),
    )


def _run(pipelines: list[Pipeline]) -> None:
    with selectors.DefaultSelector() as selector:
        for pipeline in pipelines:
            selector.register(pipeline.connection, selectors.EVENT_READ, pipeline)
            for _ in range(BLOCKS_ON_THE_WAY):
                pipeline.send_block()
        waiting = len(pipelines)
        while waiting:
            for key, _ in selector.select(timeout=30):
                key.data.take_answers()
                if not key.data.requests_to_answer:
                    selector.unregister(key.fileobj)
                    waiting -= 1
