"""Idle connections cost next to nothing; ten thousand of them are in benchmarks/."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import struct
import time

import psutil
import pytest

from millrace.testing import BrokerProcess
from millrace.wire.frames import encode_request
from millrace.wire.messages.api_versions import ApiVersionsRequest

CONNECTIONS = 1000
MAX_BYTES_EACH = 10_000
IDLE_SECONDS = 2.0
# The broker looks for idle connections once a second.
MAX_CPU_SHARE = 0.1
PATIENCE_SECONDS = 60


async def connect(port: int) -> socket.socket:
    """A client that has sent one request."""
    loop = asyncio.get_running_loop()
    sock = socket.socket()
    sock.setblocking(False)
    await loop.sock_connect(sock, ("127.0.0.1", port))
    await loop.sock_sendall(sock, encode_request(ApiVersionsRequest(), 0, 1, "idle"))
    response = await loop.sock_recv(sock, 1 << 16)
    assert len(response) == 4 + struct.unpack_from(">i", response)[0]
    return sock


async def test_a_thousand_idle_connections_take_little_memory_and_cpu() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * CONNECTIONS:
        pytest.skip(f"only {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * CONNECTIONS), hard))
    with BrokerProcess() as broker, contextlib.ExitStack() as clients:
        process = psutil.Process(broker.pid)
        async with asyncio.timeout(PATIENCE_SECONDS):
            clients.enter_context(await connect(broker.port))
            resident = process.memory_info().rss
            for _ in range(CONNECTIONS):
                clients.enter_context(await connect(broker.port))
        growth = process.memory_info().rss - resident
        assert growth / CONNECTIONS < MAX_BYTES_EACH

        before, began = process.cpu_times(), time.monotonic()
        await asyncio.sleep(IDLE_SECONDS)
        after, seconds = process.cpu_times(), time.monotonic() - began
        busy = (after.user + after.system) - (before.user + before.system)
        assert busy / seconds < MAX_CPU_SHARE

        async with asyncio.timeout(PATIENCE_SECONDS):
            (await connect(broker.port)).close()
