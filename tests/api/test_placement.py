"""Where large produce requests are received: their records as they will lie in their segment."""

import random

import pytest

from millrace.api.context import Context
from millrace.api.placement import PAGE_BYTES, place
from millrace.wire.frames import encode_request
from millrace.wire.messages.metadata import MetadataRequest
from millrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

from ..records import batch

VERSIONS = ProduceRequest.versions
FLEXIBLE_VERSIONS = range(ProduceRequest.flexible_from, VERSIONS[-1] + 1)
RECORDS = bytes(batch(b"x" * 300))


@pytest.fixture
def topic_id(ctx: Context) -> bytes:
    ctx.cluster.create_topic("events", 3)
    partition = ctx.partitions.get("events", 2)
    for _ in range(40):
        partition.append(memoryview(bytearray(RECORDS)))
    return partition.topic_id


def request(
    version: int, topic_id: bytes, *, name: str = "events", index: int = 2, client_id: str | None = "client"
) -> memoryview:
    message = ProduceRequest(
        transactional_id="buyer" if version % 2 else None,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name=name,
                topic_id=topic_id,
                partition_data=[
                    PartitionProduceData(index=index, records=RECORDS),
                    PartitionProduceData(index=0, records=RECORDS),
                ],
            )
        ],
    )
    return memoryview(encode_request(message, version, 1, client_id))[4:]


@pytest.mark.parametrize("client_id", ["client", "", None])
@pytest.mark.parametrize("version", FLEXIBLE_VERSIONS)
def test_records_lie_as_in_their_segment(
    ctx: Context, topic_id: bytes, version: int, client_id: str | None
) -> None:
    frame = request(version, topic_id, client_id=client_id)
    records_position = bytes(frame).index(RECORDS)
    end_position = ctx.partitions.get("events", 2).log.end_position
    assert end_position > 2 * PAGE_BYTES
    assert (place(ctx.partitions, frame) + records_position) % PAGE_BYTES == end_position % PAGE_BYTES


@pytest.mark.parametrize("version", VERSIONS)
def test_whatever_cannot_be_made_out_lies_anywhere(ctx: Context, topic_id: bytes, version: int) -> None:
    assert place(ctx.partitions, request(version, bytes(16), name="unknown")) == 0
    assert place(ctx.partitions, request(version, topic_id, index=7)) == 0
    frame = request(version, topic_id)
    beginning = bytes(frame).index(RECORDS) - 4
    assert {place(ctx.partitions, frame[:length]) for length in range(beginning)} == {0}


def test_other_requests_lie_anywhere(ctx: Context, topic_id: bytes) -> None:
    frame = memoryview(encode_request(MetadataRequest(), 12, 1, "client"))[4:]
    assert place(ctx.partitions, frame) == 0
    assert place(ctx.partitions, request(ProduceRequest.flexible_from - 1, topic_id)) == 0


def test_no_bytes_at_all_lead_to_an_error(ctx: Context, topic_id: bytes) -> None:
    """An answer to a broken request is the decoder's business."""
    noise = random.Random(7)
    for version in VERSIONS:
        for _ in range(200):
            frame = bytearray(request(version, topic_id)[:120])
            for _ in range(noise.randrange(1, 6)):
                frame[noise.randrange(4, len(frame))] = noise.randrange(256)
            assert 0 <= place(ctx.partitions, memoryview(frame)) < PAGE_BYTES
