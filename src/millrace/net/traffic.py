"""Connections, frames and bytes of a server, from its start on."""

from __future__ import annotations

from collections.abc import Collection

from millrace.metrics import Family, Kind, MetricName, single
from millrace.net.connection import Connection
from millrace.steps import Steps

_TYPE = "socket-server-metrics"


def _name(name: str) -> MetricName:
    return MetricName("kafka.server", _TYPE, name)


class Traffic:
    """Owned by the broker loop; not thread-safe. Each connection counts for itself until it is closed."""

    __slots__ = ("_bytes_received", "_bytes_sent", "_closed", "_connections", "_frames", "_opened")

    def __init__(self, connections: Collection[Connection]) -> None:
        """`connections` are those that are open."""
        self._connections = connections
        self._opened = 0
        self._closed = 0
        # Of closed connections.
        self._frames = 0
        self._bytes_received = 0
        self._bytes_sent = 0

    def opened(self) -> None:
        self._opened += 1

    def closed(self, connection: Connection) -> None:
        """Keep the counts of a connection, which will count no more."""
        self._closed += 1
        self._frames += connection.frames
        self._bytes_received += connection.bytes_received
        self._bytes_sent += connection.bytes_sent

    def families(self) -> Steps[list[Family]]:
        connections = self._connections
        frames = self._frames + sum(connection.frames for connection in connections)
        received = self._bytes_received + sum(connection.bytes_received for connection in connections)
        sent = self._bytes_sent + sum(connection.bytes_sent for connection in connections)
        yield
        return [
            single(_name("connection-count"), Kind.GAUGE, len(connections)),
            single(_name("connection-creation-total"), Kind.COUNTER, self._opened),
            single(_name("connection-close-total"), Kind.COUNTER, self._closed),
            single(_name("request-total"), Kind.COUNTER, frames),
            single(_name("incoming-byte-total"), Kind.COUNTER, received),
            single(_name("outgoing-byte-total"), Kind.COUNTER, sent),
        ]
