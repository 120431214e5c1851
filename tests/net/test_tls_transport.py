"""Encrypted connections of the network layer."""

from __future__ import annotations

import asyncio
import ssl

import trustme

from millrace.clock import Clock
from millrace.net.server import HANDSHAKE_MS, Server
from millrace.testing.clock import ManualClock
from millrace.testing.timers import ManualTimers

from .serving import MAX_FRAME, Client, echo, frame, only_connection


def encrypted_server(timers: ManualTimers) -> tuple[Server, int, ssl.SSLContext]:
    authority = trustme.CA()
    near, far = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(near)
    authority.configure_trust(far)
    server = Server(
        lambda connection, host, index: echo,
        loop=asyncio.get_running_loop(),
        clock=Clock(),
        timers=timers,
        max_frame_bytes=MAX_FRAME,
        max_request_bytes=64 << 20,
        max_unread_bytes=64 << 20,
        max_connections=10,
        max_idle_seconds=600.0,
    )
    _, port = server.bind("127.0.0.1", 0, lambda: near)
    server.start()
    return server, port, far


async def test_frames_of_every_size_pass_and_replies_wait_for_their_reader() -> None:
    server, port, context = encrypted_server(ManualTimers(ManualClock()))
    try:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname="localhost", limit=1 << 14
        )
        payloads = [(bytes(range(251)) * (size // 251 + 1))[:size] for size in (8, 16_384, 16_385, 3_000_000)]
        for payload in payloads * 2:
            writer.write(frame(payload))
        for payload in payloads * 2:
            assert await reader.readexactly(len(payload) + 4) == frame(payload)
        writer.close()
    finally:
        server.stop()


async def test_client_that_never_finishes_its_handshake_is_closed() -> None:
    timers = ManualTimers(ManualClock())
    server, port, _ = encrypted_server(timers)
    try:
        client = await Client.connect(port)
        await client.send(b"\x16\x03\x01\x02\x00")
        await only_connection(server)
        timers.advance(HANDSHAKE_MS)
        assert await client.is_closed()
        client.close()
    finally:
        server.stop()
