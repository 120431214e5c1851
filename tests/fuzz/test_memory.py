"""Memory that clients can make a broker hold is bounded, and other clients are served meanwhile."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator

import psutil
import pytest

from millrace.testing import BrokerProcess
from millrace.wire.frames import encode_request
from millrace.wire.messages.api_versions import ApiVersionsRequest
from millrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from millrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from millrace.wire.messages.metadata import MetadataRequest

from ..waiting import until
from ..wire_client import WireClient
from .healthy import HealthyClient
from .raw import Closed, RawClient

CLIENTS = 60
BYTES_IN_FLIGHT = 32 << 20
# Beside the requests: responses that are being sent, and memory that the allocator keeps.
MAX_GROWTH_BYTES = BYTES_IN_FLIGHT + (64 << 20)
PATIENCE_SECONDS = 30
NO_SUCH_API = 999


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    properties = {"queued.max.request.bytes": str(BYTES_IN_FLIGHT), "broker.id": "1"}
    with BrokerProcess(properties) as broker, WireClient(broker.bootstrap) as client:
        topic = CreatableTopic(name="wide", num_partitions=1000, replication_factor=1)
        client.send(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
        yield broker


def push(client: RawClient, data: bytes) -> None:
    """Send until the broker reads no more for the moment, or closes the connection."""
    client.socket.settimeout(0.05)
    with contextlib.suppress(TimeoutError, Closed):
        client.send(data)


def claims_large_frames(client: RawClient) -> None:
    push(client, struct.pack(">i", 100 << 20) + bytes(3 << 20))


def never_reads(client: RawClient) -> None:
    push(client, encode_request(MetadataRequest(topics=None), 9, 1, "fuzz") * 5000)


def pipelines_behind_a_long_poll(client: RawClient) -> None:
    partition = FetchPartition(partition=0, partition_max_bytes=1000)
    poll = FetchRequest(
        max_wait_ms=2**31 - 1, min_bytes=1, topics=[FetchTopic(topic="wide", partitions=[partition])]
    )
    push(client, encode_request(poll, 11, 1, "fuzz") + bytes(1 << 20))


def stops_in_a_header(client: RawClient) -> None:
    push(client, encode_request(ApiVersionsRequest(), 0, 1, "fuzz")[:7])


@pytest.mark.parametrize(
    "misbehaves", [claims_large_frames, never_reads, pipelines_behind_a_long_poll, stops_in_a_header]
)
def test_memory_stays_bounded_and_others_are_served(
    broker: BrokerProcess, misbehaves: Callable[[RawClient], None]
) -> None:
    process = psutil.Process(broker.pid)
    clients: list[RawClient] = []
    with HealthyClient(broker.bootstrap) as healthy:
        resident = process.memory_info().rss
        try:
            for _ in range(CLIENTS):
                clients.append(RawClient(broker.bootstrap, receive_buffer_bytes=4096))
                misbehaves(clients[-1])
            growth = process.memory_info().rss - resident
            before = healthy.rounds
            until(lambda: healthy.rounds > before + 5)
        finally:
            for client in clients:
                client.socket.close()
    assert growth < MAX_GROWTH_BYTES, f"{growth >> 20} MiB"
    assert "Traceback" not in broker.log_file.read_text()


def test_a_large_request_gets_the_memory_that_stalled_ones_hold(broker: BrokerProcess) -> None:
    body = struct.pack(">hhih", NO_SUCH_API, 0, 1, -1) + bytes(24 << 20)
    with contextlib.ExitStack() as clients:
        for _ in range(BYTES_IN_FLIGHT >> 20):
            stalled = clients.enter_context(RawClient(broker.bootstrap))
            push(stalled, struct.pack(">i", 8 << 20) + bytes(1_500_000))
        large = clients.enter_context(RawClient(broker.bootstrap))
        large.socket.settimeout(PATIENCE_SECONDS)
        large.send(struct.pack(">i", len(body)) + body)
        # It was received completely, and refused.
        assert large.drain() == b""
    log = broker.log_file.read_text()
    assert f"unsupported request: API {NO_SUCH_API}" in log
    assert "stalls in a request while memory is short" in log
