"""Dispatch: from a frame to its reply."""

import asyncio
import struct
from typing import Any

import pytest

from millrace.api.long_requests import LONG_REQUESTS_AT_ONCE
from millrace.deferred import Deferred
from millrace.errors import Error
from millrace.net.replies import CloseConnection
from millrace.steps import Steps
from millrace.wire.decoding import MAX_SHORT_REQUEST_ELEMENTS
from millrace.wire.frames import encode_request, read_response
from millrace.wire.messages.api_versions import ApiVersionsRequest
from millrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

from .api import Api

NEWEST = 2**15 - 1


@pytest.mark.parametrize("version", [5, NEWEST])
def test_a_version_of_api_versions_that_is_too_new_is_answered_in_the_oldest(api: Api, version: int) -> None:
    # What such a request is like is for the future to say; its header begins as ever.
    frame = struct.pack(">hhih", ApiVersionsRequest.api_key, version, 42, -1) + b"\0from the future"
    reply = api.dispatcher()(memoryview(frame))
    assert isinstance(reply, list)
    answer = b"".join(bytes(chunk) for chunk in reply)
    size, correlation_id, error_code, count = struct.unpack_from(">iihi", answer)
    assert (size, correlation_id, error_code, count) == (len(answer) - 4, 42, Error.UNSUPPORTED_VERSION, 1)
    assert struct.unpack_from(">hhh", answer, 14) == (ApiVersionsRequest.api_key, 0, 4)
    assert len(answer) == 20


def test_a_version_that_is_too_new_of_another_api_closes_the_connection(api: Api) -> None:
    frame = struct.pack(">hhih", MetadataRequest.api_key, NEWEST, 42, -1) + b"\0"
    with pytest.raises(CloseConnection, match=f"API 3 version {NEWEST}"):
        api.dispatcher()(memoryview(frame))


def long_request(name: str = "t") -> memoryview:
    topics = [MetadataRequestTopic(name=name) for _ in range(MAX_SHORT_REQUEST_ELEMENTS + 1)]
    return memoryview(encode_request(MetadataRequest(topics=topics), 12, 7, None))[4:]


def replies_to(api: Api, reply: object) -> list[Any]:
    """The list that will hold the reply, and what has come within some turns of the loop."""
    assert isinstance(reply, Deferred)
    replies: list[Any] = []
    reply.then(replies.append)
    for _ in range(100):
        api.loop.run_until_complete(asyncio.sleep(0))
    return replies


def test_a_long_request_is_answered_in_turns(api: Api) -> None:
    reply = api.dispatcher()(long_request())
    (chunks,) = replies_to(api, reply)
    correlation_id, response = read_response(MetadataResponse, 12, b"".join(chunks)[4:])
    assert (correlation_id, [topic.name for topic in response.topics]) == (7, ["t"])


def test_a_long_request_that_is_malformed_closes_the_connection(api: Api) -> None:
    reply = api.dispatcher()(long_request()[:-100])
    (refused,) = replies_to(api, reply)
    assert isinstance(refused, CloseConnection)
    assert "malformed" in str(refused)


def test_only_a_few_long_requests_are_under_way(api: Api) -> None:
    begun = 0

    def endless(*_: object) -> Steps[None]:
        nonlocal begun
        begun += 1
        while not ended:
            yield

    ended = False
    replies = [api.dispatcher({MetadataRequest.api_key: endless})(long_request()) for _ in range(10)]
    assert replies_to(api, replies[0]) == []
    assert begun == LONG_REQUESTS_AT_ONCE
    ended = True
    for reply in replies:
        assert replies_to(api, reply) == [None]
    assert begun == 10


def test_a_long_request_that_waits_for_its_place_is_dropped_with_its_connection(api: Api) -> None:
    for _ in range(LONG_REQUESTS_AT_ONCE):
        api.loop.run_until_complete(api.long_requests.acquire())
    reply = api.dispatcher()(long_request("created"))
    assert isinstance(reply, Deferred)
    assert replies_to(api, reply) == []
    reply.cancel()
    api.long_requests.release()
    assert replies_to(api, reply) == []
    assert not asyncio.all_tasks(api.loop)
    assert not api.image.topics


def test_long_requests_that_wait_for_a_place_count_as_memory_in_use(api: Api) -> None:
    memory = api.request_memory
    for _ in range(LONG_REQUESTS_AT_ONCE):
        api.loop.run_until_complete(api.long_requests.acquire())
    dropped, answered = (api.dispatcher()(long_request()) for _ in range(2))
    assert replies_to(api, answered) == []
    assert memory.bytes_in_use == 2 * len(long_request())
    assert isinstance(dropped, Deferred)
    dropped.cancel()
    assert replies_to(api, dropped) == []
    assert memory.bytes_in_use == len(long_request())
    api.long_requests.release()
    assert len(replies_to(api, answered)) == 1
    assert memory.bytes_in_use == 0


def test_a_long_request_that_has_begun_is_finished_without_its_connection(api: Api) -> None:
    closed = finished = False

    def until_closed(*_: object) -> Steps[None]:
        nonlocal finished
        while not closed:
            yield
        finished = True

    reply = api.dispatcher({MetadataRequest.api_key: until_closed})(long_request())
    assert isinstance(reply, Deferred)
    api.loop.run_until_complete(asyncio.sleep(0))
    reply.cancel()
    closed = True
    assert replies_to(api, reply) == []
    assert finished


def test_a_parked_request_that_was_long_is_cancelled_with_its_connection(api: Api) -> None:
    cancelled: list[bool] = []
    parked: Deferred[None] = Deferred(lambda: cancelled.append(True))
    reply = api.dispatcher({MetadataRequest.api_key: lambda *_: parked})(long_request())
    assert isinstance(reply, Deferred)
    assert replies_to(api, reply) == []
    for _ in range(LONG_REQUESTS_AT_ONCE):
        assert api.loop.run_until_complete(api.long_requests.acquire())
    reply.cancel()
    assert replies_to(api, reply) == []
    assert cancelled


def test_a_request_does_not_park_after_its_connection_is_closed(api: Api) -> None:
    cancelled: list[bool] = []
    closed = False

    def until_closed(*_: object) -> Steps[Deferred[None]]:
        while not closed:
            yield
        return Deferred(lambda: cancelled.append(True))

    reply = api.dispatcher({MetadataRequest.api_key: until_closed})(long_request())
    assert isinstance(reply, Deferred)
    api.loop.run_until_complete(asyncio.sleep(0))
    reply.cancel()
    closed = True
    assert replies_to(api, reply) == []
    assert cancelled


def test_a_request_cut_off_by_the_end_of_the_broker_is_no_trouble(api: Api) -> None:
    async def never(*_: object) -> None:
        await asyncio.get_running_loop().create_future()

    trouble: list[dict[str, Any]] = []
    api.loop.set_exception_handler(lambda _, context: trouble.append(context))
    dispatcher = api.dispatcher({MetadataRequest.api_key: never})
    reply = dispatcher(memoryview(encode_request(MetadataRequest(), 12, 1, None)[4:]))
    assert isinstance(reply, Deferred)
    (task,) = asyncio.all_tasks(api.loop)
    api.loop.run_until_complete(asyncio.sleep(0))
    task.cancel()
    api.loop.run_until_complete(asyncio.wait([task]))
    assert task.cancelled()
    assert not reply.resolved
    assert not trouble
