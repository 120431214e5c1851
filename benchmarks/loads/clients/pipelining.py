"""Prepared requests over raw connections that always have requests in flight.

A connection sends a block of frames with one write, keeps some blocks in flight, and counts the responses by
their bytes (all have the same size), checking every error code.
"""

import selectors
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field

BLOCK = 64
BLOCKS_IN_FLIGHT = 2


@dataclass(slots=True)
class Pipeline:
    """A connection and the requests that it still has to send."""

    connection: socket.socket
    blocks: Iterator[bytes]
    """Each holds `block` frames."""
    requests_left: int
    response_bytes: int
    error_position: int
    """Position of a response's error code, from its length prefix on."""
    block: int = BLOCK
    blocks_in_flight: int = BLOCKS_IN_FLIGHT
    _received: bytearray = field(default_factory=bytearray)

    def send_block(self) -> None:
        block = next(self.blocks, None)
        if block is not None:
            self.connection.sendall(block)

    def take_responses(self) -> None:
        """Read whole blocks of responses, and send a new block of requests for each."""
        chunk = self.connection.recv(1 << 16)
        if not chunk:
            raise ConnectionError("the broker closed a connection")
        self._received += chunk
        block_bytes = self.response_bytes * self.block
        while len(self._received) >= block_bytes:
            self._check_errors(block_bytes)
            del self._received[:block_bytes]
            self.requests_left -= self.block
            self.send_block()

    def _check_errors(self, block_bytes: int) -> None:
        for position in (self.error_position, self.error_position + 1):
            if any(self._received[position : block_bytes : self.response_bytes]):
                raise RuntimeError("the broker returned an error")


def run(pipelines: list[Pipeline]) -> None:
    """Send everything and wait for the last response; then close the connections."""
    with selectors.DefaultSelector() as selector:
        for pipeline in pipelines:
            selector.register(pipeline.connection, selectors.EVENT_READ, pipeline)
            for _ in range(pipeline.blocks_in_flight):
                pipeline.send_block()
        waiting = len(pipelines)
        while waiting:
            for key, _ in selector.select(timeout=30):
                key.data.take_responses()
                if not key.data.requests_left:
                    selector.unregister(key.fileobj)
                    waiting -= 1
    for pipeline in pipelines:
        pipeline.connection.close()
