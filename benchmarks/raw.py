"""Ready-made request frames for loads that no client library can generate fast enough."""

import socket
import struct
import time

from millrace.wire.records import Record, build_batch

CLIENT_ID = b"benchmark"


def connect(bootstrap: str) -> socket.socket:
    host, port = bootstrap.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def produce_frame(topic: str, partition: int, values: list[bytes], acks: int = 1) -> bytes:
    """A Produce v8 request with one batch for one partition."""
    now_ms = int(time.time() * 1000)
    batch = build_batch(Record(offset, now_ms, None, value) for offset, value in enumerate(values))
    no_transactional_id, timeout_ms = -1, 30_000
    body = struct.pack(">hhi", no_transactional_id, acks, timeout_ms)
    body += struct.pack(">i", 1) + _string(topic) + struct.pack(">iii", 1, partition, len(batch)) + batch
    return _frame(api_key=0, api_version=8, body=body)


def fetch_frame(topic: str, partition: int, offset: int, max_bytes: int) -> bytes:
    """A Fetch v4 request for one partition that does not wait for data."""
    consumer, max_wait_ms, min_bytes, read_uncommitted = -1, 0, 0, 0
    body = struct.pack(">iiiib", consumer, max_wait_ms, min_bytes, max_bytes, read_uncommitted)
    body += struct.pack(">i", 1) + _string(topic) + struct.pack(">iiqi", 1, partition, offset, max_bytes)
    return _frame(api_key=1, api_version=4, body=body)


def offset_commit_frame(
    group: str, member_id: str, generation: int, topic: str, partition: int, offset: int
) -> bytes:
    """An OffsetCommit v7 request for one partition."""
    no_instance_id, no_leader_epoch = -1, -1
    body = _string(group) + struct.pack(">i", generation) + _string(member_id)
    body += struct.pack(">hi", no_instance_id, 1) + _string(topic)
    body += struct.pack(">iiqi", 1, partition, offset, no_leader_epoch) + _string("")
    return _frame(api_key=8, api_version=7, body=body)


def check_offset_commit(answer: bytes) -> None:
    """Raise where the only partition of an OffsetCommit was refused; its error ends the answer."""
    (error,) = struct.unpack_from(">h", answer, len(answer) - 2)
    if error:
        raise RuntimeError(f"the commit was answered with error {error}")


def api_versions_frame() -> bytes:
    return _frame(api_key=18, api_version=0, body=b"")


def read_frame(connection: socket.socket) -> bytes:
    """The next response, without its length prefix."""
    (size,) = struct.unpack(">i", receive(connection, 4))
    return receive(connection, size)


def receive(connection: socket.socket, size: int) -> bytes:
    received = connection.recv(size, socket.MSG_WAITALL)
    if len(received) != size:
        raise ConnectionError(f"the broker closed the connection after {len(received)} of {size} bytes")
    return received


def _frame(*, api_key: int, api_version: int, body: bytes) -> bytes:
    correlation_id = 1
    header = struct.pack(">hhih", api_key, api_version, correlation_id, len(CLIENT_ID)) + CLIENT_ID
    return struct.pack(">i", len(header) + len(body)) + header + body


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded
