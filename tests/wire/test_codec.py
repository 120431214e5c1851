import tracemalloc

import pytest

from millrace.errors import Error, KafkaError
from millrace.wire.codec import (
    LongRequest,
    MalformedMessage,
    decode,
    decoder,
    decoder_in_steps,
    encode,
    encoder,
)
from millrace.wire.decoding import MAX_SHORT_REQUEST_ELEMENTS
from millrace.wire.encoding import INLINE_RECORDS_BYTES
from millrace.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millrace.wire.messages.create_topics import CreateTopicsRequest
from millrace.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from millrace.wire.messages.heartbeat import HeartbeatRequest
from millrace.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from millrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from millrace.wire.schema import Message, Struct, array, boolean, float64, int8, int32, octets, string, uint16
from millrace.wire.varint import read_uvarint, uvarint


class OpaqueRecords:
    """Like a slice of a file: it has a length, but its content cannot be read."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length


class Pair(Struct):
    small: int = int8()
    text: str = string()


class Sampler(Message, versions="0-1", flexible="1+"):
    flag: bool = boolean()
    port: int = uint16()
    ratio: float = float64()
    numbers: list[int] = array(int32)
    texts: list[str] = array(string)
    pairs: list[Pair] | None = array(Pair, nullable=True)
    blob: bytes = octets()
    label: str | None = string("1+", nullable=True, tag=5, default=None)
    level: int = int32("1+", tag=2, default=7)


SAMPLE = Sampler(
    flag=True,
    port=65535,
    ratio=0.5,
    numbers=[1, -1],
    texts=["ä"],
    pairs=[Pair(small=-2, text="p")],
    blob=b"\x00\xff",
)


def test_layout_before_flexible_versions() -> None:
    assert encode(SAMPLE, 0).hex(" ") == (
        "01 ff ff 3f e0 00 00 00 00 00 00 "
        "00 00 00 02 00 00 00 01 ff ff ff ff "
        "00 00 00 01 00 02 c3 a4 "
        "00 00 00 01 fe 00 01 70 "
        "00 00 00 02 00 ff"
    )


def test_layout_of_flexible_versions() -> None:
    assert encode(SAMPLE, 1).hex(" ") == (
        "01 ff ff 3f e0 00 00 00 00 00 00 03 00 00 00 01 ff ff ff ff 02 03 c3 a4 02 fe 02 70 00 03 00 ff 00"
    )


@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, 16382, 16383, 16384])
def test_compact_lengths_on_both_sides_of_a_further_byte(length: int) -> None:
    encoded = encode(Sampler(blob=b"b" * length), 1)
    assert encoded.endswith(uvarint(length + 1) + b"b" * length + b"\x00")
    assert len(encoded) == len(encode(Sampler(), 1)) + len(uvarint(length + 1)) - 1 + length
    assert decode(Sampler, 1, encoded)[0].blob == b"b" * length


def test_tagged_fields_are_written_in_the_order_of_their_tags() -> None:
    tail = "02 02 04 00 00 00 08 05 02 02 78"
    assert encode(Sampler(label="x", level=8), 1).hex(" ").endswith(tail)


def test_tagged_fields_at_their_default_are_not_written() -> None:
    assert encode(Sampler(label=None, level=7), 1) == encode(Sampler(), 1)


@pytest.mark.parametrize("buffer_type", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("version", [0, 1])
def test_any_buffer_can_be_decoded(buffer_type: type, version: int) -> None:
    decoded, _ = decode(Sampler, version, buffer_type(encode(SAMPLE, version)))
    assert decoded == SAMPLE


def test_unknown_tags_are_skipped_and_known_ones_among_them_are_read() -> None:
    known = encode(Sampler(level=9), 1)
    section = bytes.fromhex("01 02 04 00000009")
    assert known.endswith(section)
    body = known.removesuffix(section)
    unknown_first, unknown_last = bytes.fromhex("01 03 aabbcc"), uvarint(300) + uvarint(200) + bytes(200)
    mixed = body + b"\x03" + unknown_first + section[1:] + unknown_last
    decoded, end = decode(Sampler, 1, mixed)
    assert decoded == Sampler(level=9)
    assert end == len(mixed)


def test_unknown_tags_of_nested_structs_are_skipped() -> None:
    plain = encode(Sampler(pairs=[Pair(small=1, text="p")]), 1)
    tagged = plain.replace(b"\x02\x01\x02p\x00", b"\x02\x01\x02p\x01\x09\x02zz")
    assert len(tagged) == len(plain) + 4
    assert decode(Sampler, 1, tagged) == (Sampler(pairs=[Pair(small=1, text="p")]), len(tagged))


@pytest.mark.parametrize(
    "section",
    [
        "01 02 03 000000 09",
        "01 02 7f 00000009",
        "01 02 ffffffff0f 00",
        "01 ffffffffff 00",
        "ff 02 04 00000009",
    ],
    ids=["too long for its size", "size past the end", "huge size", "endless tag", "more tags than bytes"],
)
def test_tags_that_lie_about_their_size_are_malformed(section: str) -> None:
    body = encode(Sampler(), 1)[:-1]
    with pytest.raises(MalformedMessage):
        decode(Sampler, 1, body + bytes.fromhex(section))


def test_a_request_of_nothing_but_tags_is_refused_without_reading_them() -> None:
    body = encode(HeartbeatRequest(), 4)[:-1]
    few, many = (body + uvarint(count) + b"\x09\x00" * count for count in (100, 200_000))
    assert decode(HeartbeatRequest, 4, few) == (HeartbeatRequest(), len(few))
    with pytest.raises(MalformedMessage, match="more than 100000"):
        decode(HeartbeatRequest, 4, many)


@pytest.mark.parametrize(
    ("version", "numbers"),
    [(0, "7fffffff"), (0, "00000004"), (1, "ffffffff07"), (1, "05"), (1, "ffffffffff01")],
)
def test_absurd_array_counts_are_refused_before_anything_is_allocated(version: int, numbers: str) -> None:
    head = encode(Sampler(), version)[:11]
    hostile = head + bytes.fromhex(numbers) + bytes(12)
    decoder(Sampler, version)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage):
            decode(Sampler, version, hostile)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_absurd_counts_of_structs_are_refused_by_their_least_size() -> None:
    with pytest.raises(MalformedMessage, match="topics has more elements than bytes remain"):
        decode(CreateTopicsRequest, 2, (1000).to_bytes(4, "big") + bytes(1000))


def test_null_where_none_is_allowed_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="HeartbeatRequest v0: group_id may not be null"):
        decode(HeartbeatRequest, 0, b"\xff\xff" + bytes(20))
    with pytest.raises(MalformedMessage, match="MetadataRequest v0: topics may not be null"):
        decode(MetadataRequest, 0, b"\xff\xff\xff\xff")
    assert decode(MetadataRequest, 1, b"\xff\xff\xff\xff")[0].topics is None


def test_text_that_is_not_utf8_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match=r"HeartbeatRequest v0: .*utf-8"):
        decode(HeartbeatRequest, 0, b"\x00\x02\xc3\x28" + bytes(20))


def test_malformed_messages_are_invalid_requests() -> None:
    with pytest.raises(KafkaError) as raised:
        decode(HeartbeatRequest, 0, b"")
    assert raised.value.error is Error.INVALID_REQUEST


@pytest.mark.parametrize("version", [-1, 5, 99])
def test_versions_that_do_not_exist_are_unsupported(version: int) -> None:
    for compiled in (decoder, encoder):
        with pytest.raises(KafkaError, match="ApiVersionsRequest has versions 0 to 4") as raised:
            compiled(ApiVersionsRequest, version)
        assert raised.value.error is Error.UNSUPPORTED_VERSION


def test_only_the_decoder_in_steps_takes_long_requests() -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="t") for _ in range(MAX_SHORT_REQUEST_ELEMENTS + 1)]
    )
    encoded = encode(request, 9)
    with pytest.raises(LongRequest):
        decoder(MetadataRequest, 9)(encoded, 0)
    steps = decoder_in_steps(MetadataRequest, 9)(encoded, 0)
    assert sum(1 for _ in steps) > MAX_SHORT_REQUEST_ELEMENTS
    assert decode(MetadataRequest, 9, encoded)[0] == request


def test_responses_of_any_length_are_decoded_in_one_go() -> None:
    response = MetadataResponse(topics=[MetadataResponseTopic(name="t") for _ in range(2000)])
    assert decoder(MetadataResponse, 9)(encode(response, 9), 0)[0] == response


def test_functions_are_compiled_once() -> None:
    assert decoder(ApiVersionsResponse, 3) is decoder(ApiVersionsResponse, 3)
    assert encoder(ApiVersionsResponse, 3) is encoder(ApiVersionsResponse, 3)


@pytest.mark.parametrize("version", [7, 9])
def test_decoded_records_are_a_view_into_the_frame(version: int) -> None:
    request = ProduceRequest(
        topic_data=[TopicProduceData(partition_data=[PartitionProduceData(records=b"batch" * 100)])]
    )
    frame = bytearray(encode(request, version))
    decoded, _ = decode(ProduceRequest, version, frame)
    view = decoded.topic_data[0].partition_data[0].records
    assert isinstance(view, memoryview)
    position = frame.index(b"batch")
    frame[position] = ord("c")
    assert view[:5] == b"catch"


def fetch_response(*records: object) -> FetchResponse:
    partitions = [PartitionData(partition_index=index, records=item) for index, item in enumerate(records)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_opaque_records_become_chunks_of_their_own(version: int) -> None:
    first, empty, second = OpaqueRecords(10), OpaqueRecords(0), OpaqueRecords(100_000)
    chunks: list[object] = []
    rest = encoder(FetchResponse, version)(
        fetch_response(first, empty, b"small", second), bytearray(), chunks
    )
    assert [chunk for chunk in chunks if isinstance(chunk, OpaqueRecords)] == [first, second]
    stand_ins = [
        bytes(len(chunk)) if isinstance(chunk, OpaqueRecords) else chunk for chunk in (*chunks, rest)
    ]
    assert b"".join(stand_ins) == encode(fetch_response(bytes(10), b"", b"small", bytes(100_000)), version)


def test_large_records_are_not_copied_into_the_frame() -> None:
    small = memoryview(bytes(INLINE_RECORDS_BYTES))
    large = memoryview(bytes(INLINE_RECORDS_BYTES + 1))
    chunks: list[object] = []
    encoder(FetchResponse, 11)(fetch_response(small, large), bytearray(), chunks)
    assert chunks[1] is large
    assert len(chunks) == 2


def test_tagged_structs_are_absent_until_given() -> None:
    response = fetch_response(b"")
    response.responses[0].partitions[0].current_leader = LeaderIdAndEpoch(leader_id=3, leader_epoch=9)
    decoded, _ = decode(FetchResponse, 12, encode(response, 12))
    assert decoded.responses[0].partitions[0].current_leader == LeaderIdAndEpoch(leader_id=3, leader_epoch=9)
    assert decoded.responses[0].partitions[0].diverging_epoch is None
    assert (
        decode(FetchResponse, 11, encode(response, 11))[0].responses[0].partitions[0].current_leader is None
    )


def test_fields_a_version_lacks_come_out_as_defaults() -> None:
    decoded, _ = decode(FetchRequest, 4, encode(FetchRequest(session_id=5, rack_id="r", replica_id=2), 4))
    assert decoded == FetchRequest(session_id=0, rack_id="", replica_id=2)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (2**14 - 1, "ff7f"),
        (2**14, "808001"),
        (2**21 - 1, "ffff7f"),
        (2**21, "80808001"),
        (2**32 - 1, "ffffffff0f"),
    ],
)
def test_varints(value: int, encoded: str) -> None:
    assert uvarint(value).hex() == encoded
    assert read_uvarint(b"\xff" + bytes.fromhex(encoded) + b"\xff", 1) == (value, 1 + len(encoded) // 2)
