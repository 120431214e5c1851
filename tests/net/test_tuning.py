"""Socket options of clients on this machine and on others."""

from __future__ import annotations

import socket

import pytest

from .serving import Client, echo, only_connection, serving, socket_of

# From the same address as the listener's, and from another.
LOCAL, REMOTE = "127.0.0.1", "127.0.0.2"


async def connect_from(host: str, port: int) -> Client:
    sock = socket.socket()
    sock.bind((host, 0))
    sock.connect(("127.0.0.1", port))
    sock.setblocking(False)
    return Client(sock)


def congestion_control(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")


def send_buffer_bytes(sock: socket.socket) -> int:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


@pytest.mark.skipif(not hasattr(socket, "TCP_CONGESTION"), reason="this system has no such choice")
@pytest.mark.parametrize(("host", "is_remote"), [(LOCAL, False), (REMOTE, True)])
async def test_only_clients_on_other_machines_are_paced(host: str, *, is_remote: bool) -> None:
    with socket.socket() as new:
        system_default = congestion_control(new)
    async with serving(echo) as (server, port):
        # A connection that starts with BBR stays paced, so none may.
        assert [congestion_control(listening) for listening in server._listening] == [b"reno"]
        client = await connect_from(host, port)
        chosen = congestion_control(socket_of(await only_connection(server)))
        assert chosen == (system_default if is_remote else b"reno")
        client.close()


@pytest.mark.parametrize(
    ("host", "wanted_bytes", "is_set"),
    [
        (LOCAL, 100_000, True),
        (REMOTE, 100_000, False),
        # More than any system grants: its own buffers are better.
        (LOCAL, 1 << 30, False),
    ],
)
async def test_local_clients_have_a_large_send_buffer_if_the_system_grants_it(
    monkeypatch: pytest.MonkeyPatch, host: str, wanted_bytes: int, *, is_set: bool
) -> None:
    monkeypatch.setattr("millrace.net.tuning.LOCAL_SEND_BUFFER_BYTES", wanted_bytes)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, wanted_bytes)
        granted_bytes = send_buffer_bytes(other)
    async with serving(echo) as (server, port):
        client = await connect_from(host, port)
        connection = await only_connection(server)
        assert (send_buffer_bytes(socket_of(connection)) == granted_bytes) is is_set
        client.close()
