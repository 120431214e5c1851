"""Socket options that make connections cheaper, chosen by what the system allows."""

from __future__ import annotations

import socket
from contextlib import suppress

# Nothing is congested within one machine, and BBR, where it is the system's default, sets a timer for each
# packet. A connection that starts with BBR stays paced under any other control, so listeners have Reno, which
# every Linux kernel offers to every user; clients on other machines get the system's default back.
UNPACED = b"reno"
# Room for a response of several partitions, which then leaves at once. The buffer holds pages of files, not
# copies. Clients on other machines may be slow to take them and keep the system's default.
LOCAL_SEND_BUFFER_BYTES = 4 * 1024 * 1024


class SocketTuning:
    """The options for one server's sockets."""

    __slots__ = ("_congestion_control", "_has_large_send_buffers")

    def __init__(self) -> None:
        self._congestion_control = _default_congestion_control()
        self._has_large_send_buffers = _has_large_send_buffers()

    def tune_listener(self, sock: socket.socket) -> None:
        _set_congestion_control(sock, UNPACED)

    def tune_client(self, sock: socket.socket, *, is_local: bool) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not is_local:
            _set_congestion_control(sock, self._congestion_control)
        elif self._has_large_send_buffers:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LOCAL_SEND_BUFFER_BYTES)


def _default_congestion_control() -> bytes:
    """The system's default; empty if it offers no choice or does not report it."""
    if hasattr(socket, "TCP_CONGESTION"):
        with suppress(OSError), socket.socket() as sock:
            return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")
    return b""


def _set_congestion_control(sock: socket.socket, name: bytes) -> None:
    if hasattr(socket, "TCP_CONGESTION"):
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name)


def _has_large_send_buffers() -> bool:
    """Whether the system grants them. If not, its own growing buffers are the larger ones."""
    with suppress(OSError), socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LOCAL_SEND_BUFFER_BYTES)
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= LOCAL_SEND_BUFFER_BYTES
    return False
