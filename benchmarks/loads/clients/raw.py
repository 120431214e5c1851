"""Prepared request frames over raw sockets, for loads that no client library can generate fast enough."""

import socket
import time

from millrace.errors import check
from millrace.wire.frames import encode_request
from millrace.wire.messages.api_versions import ApiVersionsRequest
from millrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from millrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from millrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from millrace.wire.records import Record, build_batch
from millrace.wire.schema import Request

CLIENT_ID = "benchmark"

# The last versions whose responses have a fixed size and order, or that librdkafka speaks.
PRODUCE_VERSION, FETCH_VERSION, OFFSET_COMMIT_VERSION = 8, 4, 7


def connect(bootstrap: str) -> socket.socket:
    host, port = bootstrap.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def produce_frame(topic: str, partition: int, values: list[bytes], acks: int = 1) -> bytes:
    """A Produce request with one batch for one partition."""
    now_ms = int(time.time() * 1000)
    batch = build_batch(Record(offset, now_ms, None, value) for offset, value in enumerate(values))
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
    return _frame(ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data]), PRODUCE_VERSION)


def fetch_frame(topic: str, partition: int, offset: int, max_bytes: int) -> bytes:
    """A Fetch request for one partition that does not wait for data."""
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    return _frame(request, FETCH_VERSION)


def offset_commit_frame(
    group: str, member_id: str, generation: int, topic: str, partition: int, offset: int
) -> bytes:
    """An OffsetCommit request for one partition."""
    committed = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=group,
        member_id=member_id,
        generation_id_or_member_epoch=generation,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[committed])],
    )
    return _frame(request, OFFSET_COMMIT_VERSION)


def check_offset_commit(response: bytes) -> None:
    """Raise KafkaError if the only partition of an OffsetCommit was rejected; its error ends the response."""
    check(int.from_bytes(response[-2:], "big", signed=True))


def api_versions_frame() -> bytes:
    return _frame(ApiVersionsRequest(), 0)


def read_frame(connection: socket.socket) -> bytes:
    """The next response, without its length prefix."""
    return receive(connection, int.from_bytes(receive(connection, 4), "big"))


def receive(connection: socket.socket, size: int) -> bytes:
    received = connection.recv(size, socket.MSG_WAITALL)
    if len(received) != size:
        raise ConnectionError(f"the broker closed the connection after {len(received)} of {size} bytes")
    return received


def _frame(request: Request, version: int) -> bytes:
    return encode_request(request, version, 1, CLIENT_ID)
