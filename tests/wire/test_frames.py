import struct

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioHeaderV2
from kio.serial import entity_reader

from millrace.errors import Error
from millrace.wire.codec import MalformedMessage, decode, encode
from millrace.wire.frames import (
    RequestHeader,
    encode_request,
    encode_response,
    read_request_header,
    read_response,
)
from millrace.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from millrace.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from millrace.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from millrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")


@pytest.mark.parametrize("client_id", ["someone", "", None, "ä" * 100])
@pytest.mark.parametrize("version", [0, 3, 4])
def test_requests_are_read_as_they_were_written(version: int, client_id: str | None) -> None:
    frame = encode_request(HEARTBEAT, version, 77, client_id)
    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
    header, position = read_request_header(memoryview(frame)[4:])
    assert header == RequestHeader(12, version, 77, client_id)
    assert decode(HeartbeatRequest, version, frame[4:], position) == (HEARTBEAT, len(frame) - 4)


@pytest.mark.parametrize(("version", "kio_header"), [(3, KioHeaderV1), (4, KioHeaderV2)])
def test_request_headers_agree_with_kio(version: int, kio_header: type) -> None:
    frame = encode_request(HEARTBEAT, version, 77, "someone")[4:]
    header, size = entity_reader(kio_header)(frame, 0)
    assert (header.request_api_key, header.request_api_version) == (12, version)
    assert (header.correlation_id, header.client_id) == (77, "someone")
    assert read_request_header(frame)[1] == size


def test_tags_in_a_request_header_are_skipped() -> None:
    header = struct.pack(">hhih", 12, 4, 1, 1) + b"c" + bytes.fromhex("01 05 03 aabbcc")
    assert read_request_header(header + b"body") == (RequestHeader(12, 4, 1, "c"), len(header))


def test_a_header_of_nothing_but_tags_is_malformed() -> None:
    header = struct.pack(">hhih", 12, 4, 1, -1) + b"\xff\xff\x7f" + b"\x09\x00" * 0x1FFFFF
    with pytest.raises(MalformedMessage, match="tagged fields"):
        read_request_header(header)


def test_the_header_of_an_unknown_api_is_still_read() -> None:
    header = struct.pack(">hhih", 9999, 42, 1, -1)
    assert read_request_header(header + b"body") == (RequestHeader(9999, 42, 1, None), len(header))


def test_an_api_versions_request_of_the_future_has_a_flexible_header() -> None:
    header = struct.pack(">hhih", ApiVersionsRequest.api_key, 99, 1, -1) + b"\x00"
    assert read_request_header(header + b"body")[1] == len(header)


def test_a_header_cut_short_anywhere_is_malformed() -> None:
    frame = encode_request(HEARTBEAT, 4, 77, "someone")[4:]
    _, size = read_request_header(frame)
    for length in range(size):
        with pytest.raises(MalformedMessage, match="request header"):
            read_request_header(memoryview(frame)[:length])


def test_a_client_id_that_is_not_utf8_is_malformed() -> None:
    with pytest.raises(MalformedMessage):
        read_request_header(struct.pack(">hhih", 12, 0, 1, 2) + b"\xc3\x28")


def test_requests_with_large_records_are_one_frame() -> None:
    records = bytes(range(256)) * 100
    request = ProduceRequest(
        topic_data=[TopicProduceData(partition_data=[PartitionProduceData(records=records)])]
    )
    frame = encode_request(request, 9, 1, None)
    assert len(frame) == 4 + struct.unpack_from(">i", frame)[0]
    assert records in frame


@pytest.mark.parametrize("version", [0, 3, 4])
def test_responses_are_read_as_they_were_written(version: int) -> None:
    response = HeartbeatResponse(error_code=Error.REBALANCE_IN_PROGRESS)
    (frame,) = encode_response(response, version, 77)
    assert struct.unpack_from(">ii", frame) == (len(frame) - 4, 77)
    assert read_response(HeartbeatResponse, version, frame[4:]) == (77, response)


def test_the_header_of_an_api_versions_response_never_has_tags() -> None:
    response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=0, min_version=3, max_version=13)])
    (frame,) = encode_response(response, 3, 77)
    assert frame[8:] == encode(response, 3)
    assert read_response(ApiVersionsResponse, 3, frame[4:]) == (77, response)
    (heartbeat,) = encode_response(HeartbeatResponse(), 4, 77)
    assert heartbeat[8:] == b"\x00" + encode(HeartbeatResponse(), 4)


@pytest.mark.parametrize("version", [11, 12])
def test_a_response_with_large_records_is_sent_in_chunks_of_one_frame(version: int) -> None:
    records = memoryview(bytes(100_000))
    partition = PartitionData(records=records)
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
    chunks = encode_response(response, version, 77)
    assert isinstance(chunks[0], bytearray)
    assert chunks[1] is records
    frame = b"".join(chunks)
    assert struct.unpack_from(">ii", frame) == (len(frame) - 4, 77)
    assert read_response(FetchResponse, version, frame[4:]) == (77, response)


def test_a_response_that_ends_with_its_records_has_no_empty_last_chunk() -> None:
    partition = PartitionData(records=bytes(100_000))
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
    assert len(encode_response(response, 11, 77)) == 2


def test_a_response_cut_short_is_malformed() -> None:
    (frame,) = encode_response(HeartbeatResponse(), 4, 77)
    for length in range(len(frame) - 4):
        with pytest.raises(MalformedMessage):
            read_response(HeartbeatResponse, 4, frame[4 : 4 + length])
