"""Clients that take more than their share of the broker do not delay the others."""

from __future__ import annotations

import contextlib
import multiprocessing
import selectors
import struct
import time
from collections.abc import Iterator

import pytest

from millrace.testing import BrokerProcess
from millrace.wire.frames import encode_request
from millrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from millrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from millrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

from ..records import batch
from ..waiting import until
from ..wire_client import WireClient
from .raw import RawClient

TOPIC = "shared"
PRODUCE_VERSION, FETCH_VERSION = 9, 11
# A loaded machine may be slow; a broker that makes its clients wait for each other is slower.
PATIENCE_SECONDS = 10


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    properties = {"millrace.queued.max.response.bytes": str(100_000)}
    with BrokerProcess(properties) as broker, WireClient(broker.bootstrap) as client:
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        client.send(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
        yield broker


def produce(record_bytes: int) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=memoryview(batch(b"x" * record_bytes)))
    return ProduceRequest(acks=1, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])])


def produce_frame(record_bytes: int) -> bytes:
    return encode_request(produce(record_bytes), PRODUCE_VERSION, 1, "greedy")


@pytest.mark.parametrize("connections", [400, 1000])
def test_claimed_requests_do_not_delay_real_ones(broker: BrokerProcess, connections: int) -> None:
    with contextlib.ExitStack() as clients:
        for _ in range(connections):
            claiming = clients.enter_context(RawClient(broker.bootstrap))
            claiming.send(struct.pack(">i", 300_000) + b"ten bytes.")
        with RawClient(broker.bootstrap) as honest, RawClient(broker.bootstrap) as other:
            honest.socket.settimeout(PATIENCE_SECONDS)
            other.socket.settimeout(PATIENCE_SECONDS)
            for record_bytes in (100, 3_000, 600_000):
                frame = produce_frame(record_bytes)
                honest.send(frame[:50])
                # The broker reads the beginning before it answers requests that come later.
                for _ in range(2):
                    other.send(produce_frame(1))
                    other.read_frame()
                honest.send(frame[50:])
                honest.read_frame()


class Pipelining:
    """A connection that always has requests to send."""

    def __init__(self, client: RawClient, requests: bytes) -> None:
        self.client = client
        self._requests = requests
        self._unsent = memoryview(requests)

    def go_on(self, events: int) -> None:
        if events & selectors.EVENT_READ:
            self.client.socket.recv(1 << 16)
        if events & selectors.EVENT_WRITE:
            sent = self.client.socket.send(self._unsent)
            self._unsent = self._unsent[sent:] or memoryview(self._requests)


def pipeline_forever(bootstrap: str, connections: int) -> None:
    """Keep hundreds of requests under way on each connection."""
    requests = produce_frame(100) * 200
    with selectors.DefaultSelector() as selector:
        for _ in range(connections):
            pipelining = Pipelining(RawClient(bootstrap), requests)
            pipelining.client.socket.setblocking(False)
            selector.register(
                pipelining.client.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, pipelining
            )
        while True:
            for key, events in selector.select():
                key.data.go_on(events)


def test_pipelining_clients_do_not_delay_one_that_sends_single_requests(broker: BrokerProcess) -> None:
    greedy = multiprocessing.get_context("spawn").Process(
        target=pipeline_forever, args=(broker.bootstrap, 200), daemon=True
    )
    greedy.start()
    try:
        with WireClient(broker.bootstrap) as modest:
            until(lambda: end_offset(modest) > 10_000)
            began = time.monotonic()
            for _ in range(50):
                modest.send(produce(100), PRODUCE_VERSION)
            assert time.monotonic() - began < PATIENCE_SECONDS
    finally:
        greedy.kill()
        greedy.join()


def end_offset(client: WireClient) -> int:
    response = client.send(produce(1), PRODUCE_VERSION)
    offset: int = response.responses[0].partition_responses[0].base_offset
    return offset


def test_clients_that_do_not_read_are_closed_when_too_much_waits_for_them(broker: BrokerProcess) -> None:
    partition = FetchPartition(partition=0, partition_max_bytes=1 << 20)
    fetch = FetchRequest(
        max_wait_ms=0, max_bytes=1 << 20, topics=[FetchTopic(topic=TOPIC, partitions=[partition])]
    )
    requests = encode_request(fetch, FETCH_VERSION, 1, "greedy") * 2000
    with WireClient(broker.bootstrap) as honest, contextlib.ExitStack() as clients:
        # Few records are copied into the response instead of being sent from their file.
        honest.send(produce(15_000), PRODUCE_VERSION)
        for _ in range(20):
            silent = clients.enter_context(RawClient(broker.bootstrap, receive_buffer_bytes=4096))
            silent.send(requests)
        until(lambda: "slow to read its responses" in broker.log_file.read_text())
        for _ in range(20):
            response = honest.send(fetch, FETCH_VERSION)
            assert len(response.responses[0].partitions[0].records) > 15_000
