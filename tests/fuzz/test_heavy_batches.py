"""Batches that are expensive to check: their senders wait, other clients do not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import psutil
import pytest
from confluent_kafka import KafkaError, Producer

from millrace.errors import Error
from millrace.testing import BrokerProcess
from millrace.wire.compression import Codec
from millrace.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from millrace.wire.records import HEADER_BYTES, assemble, encode_record, read_header

from .. import crafted
from ..reading import read_topic
from ..wire_client import WireClient
from .bystander import Bystander
from .test_corrupt_records import create, produce

CLIENTS = 3
RECORDS_SENT_MEANWHILE = 200
# What Apache Kafka keeps to; a few may meet a machine that is busy otherwise.
SECONDS = 0.125
TOLERATED = 0.05
MILLION = 1_000_000


def now_ms() -> int:
    return int(time.time() * 1000)


def a_million_equal_records() -> bytes:
    """Less than a kilobyte, and every offset is wrong."""
    record = encode_record(0, 0, b"", b"")
    return crafted.batch([record * MILLION], count=MILLION, timestamp=now_ms(), codec=Codec.ZSTD)


def a_million_records() -> bytes:
    records = (encode_record(number, 0, b"", b"") for number in range(MILLION))
    return crafted.batch(records, count=MILLION, timestamp=now_ms(), codec=Codec.ZSTD)


def half_a_million_headers() -> bytes:
    return crafted.batch([encode_record(0, 0, b"key", b"", (("", None),) * 450_000)], timestamp=now_ms())


def much_text() -> bytes:
    """60 MiB in some 15 KB."""
    words = b"".join(b"word%d " % (number * 7919 % 5003) for number in range(60_000))
    text = (words * 200)[: 60 << 20]
    return crafted.batch([encode_record(0, 0, b"key", text)], timestamp=now_ms(), codec=Codec.ZSTD)


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as broker:
        with WireClient(broker.bootstrap) as client:
            create(client, "quiet")
            create(client, "plain")
            create(client, "compacted", cleanup_policy="compact")
            create(client, "gzip", compression_type="gzip", compression_gzip_level="9")
            create(client, "lz4", compression_type="lz4", compression_lz4_level="17")
        yield broker


class Repeated:
    """An action that some clients repeat as often as they can, and its results."""

    def __init__(self, broker: BrokerProcess, act: Callable[[WireClient], int]) -> None:
        self.results: set[int] = set()
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=(broker.bootstrap, act), daemon=True)
            for _ in range(CLIENTS)
        ]

    def _repeat(self, bootstrap: str, act: Callable[[WireClient], int]) -> None:
        with WireClient(bootstrap) as client:
            while not self._stopping.is_set():
                self.results.add(act(client))

    def __enter__(self) -> Repeated:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()


def share_of_slow_records(broker: BrokerProcess, act: Callable[[WireClient], int], result: int) -> float:
    """The share of a bystander's records that are acknowledged late while others repeat this."""
    with Bystander(broker.bootstrap, "quiet") as bystander, Repeated(broker, act) as repeated:
        deadline = time.monotonic() + 60
        while bystander.sent < RECORDS_SENT_MEANWHILE or not repeated.results:
            assert time.monotonic() < deadline, f"{bystander.sent} records in 60 s"
            time.sleep(0.05)
        slow = bystander.slower_than(SECONDS)
    assert repeated.results == {result}
    return slow


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made", "topic", "error"),
    [
        (a_million_equal_records, "compacted", Error.INVALID_RECORD),
        (a_million_records, "compacted", Error.NONE),
        (half_a_million_headers, "compacted", Error.NONE),
        (much_text, "gzip", Error.MESSAGE_TOO_LARGE),
        (much_text, "lz4", Error.MESSAGE_TOO_LARGE),
    ],
)
def test_others_are_served_while_clients_produce_it(
    broker: BrokerProcess, made: Callable[[], bytes], topic: str, error: Error
) -> None:
    batch = made()
    slow = share_of_slow_records(broker, lambda client: produce(client, topic, batch).error_code, int(error))
    assert slow < TOLERATED


@pytest.mark.slow
@pytest.mark.parametrize("made", [a_million_records, much_text])
def test_others_are_served_while_clients_search_it(broker: BrokerProcess, made: Callable[[], bytes]) -> None:
    sent = made()
    header = read_header(sent)
    # It promises a record that it does not hold, so all of it is searched.
    promising = assemble(header._replace(max_timestamp=header.max_timestamp + 1000), sent[HEADER_BYTES:])
    wanted = ListOffsetsPartition(partition_index=0, timestamp=header.max_timestamp + 1000)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="plain", partitions=[wanted])])
    with WireClient(broker.bootstrap) as client:
        assert produce(client, "plain", promising).error_code == Error.NONE

    def search(client: WireClient) -> int:
        offset: int = client.send(request, 5).topics[0].partitions[0].offset
        return offset

    assert share_of_slow_records(broker, search, -1) < TOLERATED


def test_a_producers_batches_stay_in_order_whatever_their_size(broker: BrokerProcess) -> None:
    errors: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "compression.type": "zstd",
            "linger.ms": 20,
            "batch.num.messages": 5000,
        }
    )

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            errors.append(error)

    number = 0
    for size in (1, 5000, 1, 3, 5000, 2, 2000, 5000, 1):
        for _ in range(size):
            for topic in ("compacted", "gzip"):
                producer.produce(topic, b"%d" % number, b"key-%d" % number, on_delivery=delivered)
            number += 1
        # A batch of its own.
        assert producer.flush(60) == 0
    assert not errors
    for topic in ("compacted", "gzip"):
        values = [int(record.value() or b"") for record in read_topic(broker.bootstrap, topic)]
        assert values == list(range(number))


def test_its_processes_end_with_a_killed_broker(broker: BrokerProcess) -> None:
    with WireClient(broker.bootstrap) as client:
        produce(client, "compacted", a_million_equal_records())
    children = psutil.Process(broker.pid).children()
    assert children
    broker.kill9()
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive
