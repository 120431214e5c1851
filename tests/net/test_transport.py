"""Connections work over any transport: here, one that encrypts every byte."""

from __future__ import annotations

import asyncio
import io
import os
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from millrace.clock import Clock
from millrace.net.buffers import POOLED_BYTES, FrameBuffers
from millrace.net.busy_polling import BusyPolling
from millrace.net.connection import Connection, Shared
from millrace.net.file_sender import FileSender
from millrace.net.replies import Bytes, Dispatch, FileRange, Reply
from millrace.net.transport import PlainTransport, Transport
from millrace.net.turns import Turns
from millrace.net.unread_replies import UnreadReplies
from millrace.storage.file_slice import FileSlice

from .serving import MAX_FRAME, Client, echo, frame, until

KEY = 0x5A
CIPHER = bytes(byte ^ KEY for byte in range(256))
# As with TLS, no more than one record is received or sent at a time.
RECORD_BYTES = 16 * 1024


class EncryptedTransport:
    """The bytes of a plain transport, encrypted; files are copied."""

    def __init__(self, plain: PlainTransport) -> None:
        self.peer = plain.peer
        self.peer_certificate = None
        self._plain = plain
        self.on_readable = plain.on_readable
        self.on_writable = plain.on_writable
        self.await_bytes = plain.await_bytes
        self.unread_bytes = plain.unread_bytes
        self.unacknowledged_bytes = plain.unacknowledged_bytes
        self.close = plain.close

    def recv_into(self, view: memoryview) -> int:
        received = self._plain.recv_into(view[:RECORD_BYTES])
        view[:received] = bytes(view[:received]).translate(CIPHER)
        return received

    def send(self, data: Bytes, *, more: bool) -> int:
        return self._plain.send(bytes(data[:RECORD_BYTES]).translate(CIPHER), more=more)

    def send_buffers(self, buffers: Sequence[Bytes], *, more: bool) -> int:
        return self.send(b"".join(buffers), more=more)

    def send_file(self, piece: FileRange, *, more: bool) -> int:
        return self.send(os.pread(piece.file.fileno(), piece.length, piece.position), more=more)


class DecryptingClient(Client):
    async def send(self, data: bytes) -> None:
        await super().send(data.translate(CIPHER))

    async def read_frame(self) -> bytes:
        (size,) = struct.unpack(">i", (await self.read(4)).translate(CIPHER))
        return (await self.read(size)).translate(CIPHER)


@asynccontextmanager
async def connected(dispatch: Dispatch) -> AsyncIterator[tuple[Connection, DecryptingClient]]:
    loop, clock = asyncio.get_running_loop(), Clock()
    shared = Shared(
        clock=clock,
        buffers=FrameBuffers(64 << 20),
        unread_replies=UnreadReplies(64 << 20, clock),
        turns=Turns(loop, clock),
        busy_polling=BusyPolling(loop, clock, 0.0),
        max_frame_bytes=MAX_FRAME,
    )
    near, far = socket.socketpair()
    for sock in (near, far):
        sock.setblocking(False)
    files = FileSender()
    transport: Transport = EncryptedTransport(PlainTransport(near, "client", loop=loop, files=files))
    connection = Connection(transport, shared, on_close=lambda connection: None)
    client = DecryptingClient(far)
    connection.start(dispatch)
    try:
        yield connection, client
    finally:
        client.close()
        connection.close("the test is over")
        files.close()


async def test_requests_and_replies_of_every_size_pass() -> None:
    async with connected(echo) as (_, client):
        for size in (8, 300, RECORD_BYTES, RECORD_BYTES + 1, 300_000, POOLED_BYTES + 5):
            payload = (bytes(range(251)) * (size // 251 + 1))[:size]
            sending = asyncio.create_task(client.send(frame(payload)))
            assert await client.read_frame() == payload
            await sending


async def test_files_pass(tmp_path: Path) -> None:
    content = bytes(range(256)) * 4000
    path = tmp_path / "segment.log"
    path.write_bytes(content)

    def dispatch(request: memoryview) -> Reply:
        return [struct.pack(">i", len(content)), FileSlice(io.FileIO(path), 0, len(content))]

    async with connected(dispatch) as (_, client):
        await client.send(frame(b"fetch me"))
        assert await client.read_frame() == content


async def test_the_end_of_the_stream_closes_the_connection() -> None:
    async with connected(echo) as (connection, client):
        client.close()
        await until(lambda: connection.closed)
