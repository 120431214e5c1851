"""Idle connections cost next to nothing; ten thousand of them are in benchmarks/."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import struct

import psutil
import pytest

from millrace.testing import BrokerProcess
from millrace.wire.frames import encode_request
from millrace.wire.messages.api_versions import ApiVersionsRequest

from ..waiting import until

CONNECTIONS = 1000
MAX_BYTES_EACH = 10_000
WAKE_UPS = 5
MAX_CPU_SECONDS_PER_WAKE_UP = 0.05
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

        # It looks for idle connections, and flushes its logs, from time to time.
        before, first = process.cpu_times(), process.num_ctx_switches().voluntary
        until(lambda: process.num_ctx_switches().voluntary >= first + WAKE_UPS)
        after, last = process.cpu_times(), process.num_ctx_switches().voluntary
        busy = (after.user + after.system) - (before.user + before.system)
        assert busy / (last - first) < MAX_CPU_SECONDS_PER_WAKE_UP

        async with asyncio.timeout(PATIENCE_SECONDS):
            (await connect(broker.port)).close()
