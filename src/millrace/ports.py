"""Ports for servers that have to be told theirs before they start."""

import secrets
import socket

HOST = "127.0.0.1"
# Outgoing connections get theirs from above (32768 on Linux, 49152 elsewhere), and would now and then take
# one that was free a moment ago: a JVM needs seconds to come back for it.
CHOICE = range(10_000, 32_768)


def free_port() -> int:
    """A TCP port that nobody uses, and that is not likely to be used before the caller does."""
    while True:
        port = secrets.choice(CHOICE)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        return port
