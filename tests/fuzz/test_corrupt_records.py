"""Batches that are not what they say: refused with the error Kafka gives, and in little memory."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from millrace.errors import Error
from millrace.testing import Broker, BrokerProcess
from millrace.wire.compression import Codec, compress
from millrace.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from millrace.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from millrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from millrace.wire.records import (
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    Record,
    assemble,
    build_batch,
    encode_record,
    read_header,
)

from ..wire_client import WireClient
from .healthy import HealthyClient

VERSION = 9
LATEST = -1
NOW_MS = 1_700_000_000_000
MAX_GROWTH_BYTES = 250 << 20

GOOD = build_batch([Record(offset, NOW_MS + offset, b"key", b"value") for offset in range(3)])


def rebuilt(payload: bytes | None = None, **changes: int) -> bytes:
    """The good batch with other header fields or records, and a right checksum over them."""
    header = read_header(GOOD)._replace(**changes)
    return assemble(header, GOOD[HEADER_BYTES:] if payload is None else payload)


def patched(format: str, position: int, value: int) -> bytes:
    """The good batch with a number changed that the checksum does not cover."""
    batch = bytearray(GOOD)
    struct.pack_into(format, batch, position, value)
    return bytes(batch)


LIES: dict[str, tuple[bytes | None, Error]] = {
    "no records at all": (None, Error.INVALID_RECORD),
    "nothing": (b"", Error.INVALID_RECORD),
    "half a header": (GOOD[:30], Error.INVALID_RECORD),
    "cut short": (GOOD[:-1], Error.INVALID_RECORD),
    "something behind": (GOOD + b"\0" * 5, Error.INVALID_RECORD),
    "two batches": (GOOD + GOOD, Error.INVALID_RECORD),
    "a length too large": (patched(">i", 8, len(GOOD)), Error.INVALID_RECORD),
    "a negative length": (patched(">i", 8, -1), Error.CORRUPT_MESSAGE),
    "a length of nothing": (patched(">i", 8, 0), Error.CORRUPT_MESSAGE),
    "the largest length": (patched(">i", 8, 2**31 - 1), Error.INVALID_RECORD),
    "magic 0": (patched(">b", 16, 0), Error.INVALID_RECORD),
    "magic 1": (patched(">b", 16, 1), Error.INVALID_RECORD),
    "magic 3": (patched(">b", 16, 3), Error.CORRUPT_MESSAGE),
    "a negative magic": (patched(">b", 16, -1), Error.CORRUPT_MESSAGE),
    "a wrong checksum": (patched(">I", 17, 1), Error.CORRUPT_MESSAGE),
    "a flipped bit": (GOOD[:-3] + bytes([GOOD[-3] ^ 1]) + GOOD[-2:], Error.CORRUPT_MESSAGE),
    "an offset": (patched(">q", 0, 5), Error.INVALID_RECORD),
    "a negative offset": (patched(">q", 0, -5), Error.INVALID_RECORD),
    "no records in it": (rebuilt(record_count=0, last_offset_delta=-1), Error.INVALID_RECORD),
    "a negative count": (rebuilt(record_count=-3, last_offset_delta=-4), Error.INVALID_RECORD),
    "a count that is not its range": (rebuilt(record_count=2), Error.INVALID_RECORD),
    "more records than fit": (rebuilt(record_count=90, last_offset_delta=89), Error.INVALID_RECORD),
    "the largest count": (rebuilt(record_count=2**31 - 1, last_offset_delta=2**31 - 2), Error.INVALID_RECORD),
    "the largest count, compressed": (
        rebuilt(record_count=2**31 - 1, last_offset_delta=2**31 - 2, attributes=Codec.GZIP),
        Error.INVALID_RECORD,
    ),
    "control records": (rebuilt(attributes=CONTROL_BIT), Error.INVALID_RECORD),
    "an unknown codec": (rebuilt(attributes=7), Error.INVALID_RECORD),
    "the broker's own time": (rebuilt(attributes=LOG_APPEND_TIME_BIT), Error.INVALID_TIMESTAMP),
    "a producer without a sequence": (rebuilt(producer_id=5, producer_epoch=0), Error.INVALID_RECORD),
    "a negative producer": (rebuilt(producer_id=-7, base_sequence=0), Error.INVALID_RECORD),
}

# Found only where the broker must look into records: here, because it needs their keys.
HIDDEN_LIES: dict[str, bytes] = {
    "fewer records than it says": rebuilt(record_count=5, last_offset_delta=4),
    "more records than it says": rebuilt(record_count=1, last_offset_delta=0),
    "noise for records": rebuilt(payload=b"\xff" * 60),
    "zeros for records": rebuilt(payload=bytes(60)),
    "a record longer than the batch": rebuilt(payload=b"\xfe\xff\xff\xff\x0f" + bytes(50)),
    "noise for gzip": rebuilt(payload=b"\xff" * 60, attributes=Codec.GZIP),
    "noise for snappy": rebuilt(payload=b"\xff" * 60, attributes=Codec.SNAPPY),
    "noise for lz4": rebuilt(payload=b"\xff" * 60, attributes=Codec.LZ4),
    "noise for zstd": rebuilt(payload=b"\xff" * 60, attributes=Codec.ZSTD),
    "gzip cut short": rebuilt(payload=compress(Codec.GZIP, GOOD[HEADER_BYTES:])[:-9], attributes=Codec.GZIP),
    "nothing, compressed": rebuilt(payload=b"", attributes=Codec.ZSTD),
}


def create(client: WireClient, topic: str, **configs: str) -> None:
    settings = [
        CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()
    ]
    requested = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, configs=settings)
    (created,) = client.send(CreateTopicsRequest(topics=[requested], timeout_ms=10_000), 5).topics
    assert not created.error_code, created


def produce(client: WireClient, topic: str, batch: bytes | None) -> Any:
    data = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    return client.send(request, VERSION).responses[0].partition_responses[0]


def end_offset(client: WireClient, topic: str) -> int:
    requested = ListOffsetsTopic(
        name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=LATEST)]
    )
    response = client.send(ListOffsetsRequest(replica_id=-1, topics=[requested]), 5)
    offset: int = response.topics[0].partitions[0].offset
    return offset


@pytest.fixture(scope="module")
def client() -> Iterator[WireClient]:
    with Broker() as broker, WireClient(broker.bootstrap) as client:
        create(client, "plain")
        create(client, "compacted", cleanup_policy="compact")
        create(client, "recompressed", compression_type="zstd")
        yield client


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("topic", ["plain", "compacted", "recompressed"])
def test_a_batch_that_lies_is_refused_as_kafka_refuses_it(client: WireClient, topic: str, lie: str) -> None:
    batch, error = LIES[lie]
    before = end_offset(client, topic)
    response = produce(client, topic, batch)
    assert Error(response.error_code) is error, response.error_message
    assert response.base_offset == -1
    assert end_offset(client, topic) == before
    assert not produce(client, topic, GOOD).error_code


@pytest.mark.parametrize("lie", HIDDEN_LIES)
def test_a_batch_whose_records_are_checked_may_not_lie_about_them(client: WireClient, lie: str) -> None:
    before = end_offset(client, "compacted")
    response = produce(client, "compacted", HIDDEN_LIES[lie])
    assert Error(response.error_code) is Error.INVALID_RECORD, response.error_message
    assert end_offset(client, "compacted") == before


def test_only_the_first_records_without_a_key_are_listed(client: WireClient) -> None:
    records = [Record(offset, NOW_MS, None, b"") for offset in range(5000)]
    response = produce(client, "compacted", build_batch(records, codec=Codec.ZSTD))
    assert Error(response.error_code) is Error.INVALID_RECORD
    assert [error.batch_index for error in response.record_errors] == list(range(1000))


def bomb(codec: Codec, payload: bytes, count: int) -> bytes:
    header = BatchHeader(0, 0, -1, 2, 0, codec, count - 1, NOW_MS, NOW_MS, -1, -1, -1, count)
    return assemble(header, compress(codec, payload))


def one_huge_record(codec: Codec) -> bytes:
    return bomb(codec, encode_record(0, 0, b"key", bytes(100 << 20)), 1)


def countless_records(codec: Codec) -> bytes:
    return bomb(codec, encode_record(0, 0, b"", b"") * 2_000_000, 2_000_000)


def as_many_records_as_pass(codec: Codec) -> bytes:
    return bomb(codec, encode_record(0, 0, None, b"") * 1_000_000, 1_000_000)


BOMBS: tuple[Callable[[Codec], bytes], ...] = (one_huge_record, countless_records, as_many_records_as_pass)


@pytest.mark.parametrize("made", BOMBS)
def test_a_bomb_is_refused_in_little_memory_and_time(made: Callable[[Codec], bytes]) -> None:
    with BrokerProcess({"message.max.bytes": str(8 << 20)}) as broker, WireClient(broker.bootstrap) as client:
        create(client, "compacted", cleanup_policy="compact")
        create(client, "recompressed", compression_type="lz4")
        process = psutil.Process(broker.pid)
        with HealthyClient(broker.bootstrap):
            resident = process.memory_info().rss
            peak = resident
            for codec in (Codec.GZIP, Codec.ZSTD):
                batch = made(codec)
                for topic in ("compacted", "recompressed"):
                    response = produce(client, topic, batch)
                    if topic == "compacted":
                        assert Error(response.error_code) is Error.INVALID_RECORD
                    peak = max(peak, peak_memory(process))
        assert peak - resident < MAX_GROWTH_BYTES
        assert "Traceback" not in broker.log_file.read_text()


def peak_memory(process: psutil.Process) -> int:
    """The largest resident size that a process ever had, in bytes."""
    with open(f"/proc/{process.pid}/status") as status:  # noqa: PTH123
        line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10
