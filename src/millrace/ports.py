"""Free ports for servers that need a port number before they start."""

import secrets
import socket

HOST = "127.0.0.1"
# Outgoing connections use ports above this range (from 32768 on Linux, 49152 elsewhere). They could take
# a port that was free a moment ago, because a JVM needs seconds until it binds its port.
CHOICE = range(10_000, 32_768)


def free_port() -> int:
    """A TCP port that is free, and likely to stay free until the caller binds it."""
    while True:
        port = secrets.choice(CHOICE)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        return port
