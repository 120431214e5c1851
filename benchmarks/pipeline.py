"""Prepared requests over raw connections that are never without requests under way.

A connection sends a block of frames with one write, keeps some blocks on their way, and counts the answers by
their bytes (they are all of one size), checking every error code.
"""

import selectors
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field

BLOCK = 64
BLOCKS_ON_THE_WAY = 2


@dataclass(slots=True)
class Pipeline:
    """One connection and what is still to go through it."""

    connection: socket.socket
    blocks: Iterator[bytes]
    """Each holds as many frames as `block` says."""
    requests_to_answer: int
    answer_bytes: int
    error_position: int
    """Where an answer's error code stands, counted from its length prefix."""
    block: int = BLOCK
    blocks_on_the_way: int = BLOCKS_ON_THE_WAY
    _received: bytearray = field(default_factory=bytearray)

    def send_block(self) -> None:
        block = next(self.blocks, None)
        if block is not None:
            self.connection.sendall(block)

    def take_answers(self) -> None:
        """Consume whole blocks of answers and replace each by a new block of requests."""
        chunk = self.connection.recv(1 << 16)
        if not chunk:
            raise ConnectionError("the broker closed a connection")
        self._received += chunk
        block_bytes = self.answer_bytes * self.block
        while len(self._received) >= block_bytes:
            self._check_errors(block_bytes)
            del self._received[:block_bytes]
            self.requests_to_answer -= self.block
            self.send_block()

    def _check_errors(self, block_bytes: int) -> None:
        for position in (self.error_position, self.error_position + 1):
            if any(self._received[position : block_bytes : self.answer_bytes]):
                raise RuntimeError("the broker answered with an error")


def run(pipelines: list[Pipeline]) -> None:
    """Send everything and wait for the last answer; then close the connections."""
    with selectors.DefaultSelector() as selector:
        for pipeline in pipelines:
            selector.register(pipeline.connection, selectors.EVENT_READ, pipeline)
            for _ in range(pipeline.blocks_on_the_way):
                pipeline.send_block()
        waiting = len(pipelines)
        while waiting:
            for key, _ in selector.select(timeout=30):
                key.data.take_answers()
                if not key.data.requests_to_answer:
                    selector.unregister(key.fileobj)
                    waiting -= 1
    for pipeline in pipelines:
        pipeline.connection.close()
