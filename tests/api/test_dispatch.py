"""Dispatch: from a frame to its reply."""

import asyncio
import struct
from typing import Any

import pytest

from millrace.api import HANDLERS_BY_KEY
from millrace.api.context import Context
from millrace.api.dispatch import Dispatcher
from millrace.deferred import Deferred
from millrace.errors import Error
from millrace.net.replies import CloseConnection
from millrace.wire.frames import encode_request
from millrace.wire.messages.api_versions import ApiVersionsRequest
from millrace.wire.messages.metadata import MetadataRequest

NEWEST = 2**15 - 1


@pytest.mark.parametrize("version", [5, NEWEST])
def test_a_version_of_api_versions_that_is_too_new_is_answered_in_the_oldest(
    ctx: Context, version: int
) -> None:
    # What such a request is like is for the future to say; its header begins as ever.
    frame = struct.pack(">hhih", ApiVersionsRequest.api_key, version, 42, -1) + b"\0from the future"
    reply = Dispatcher(ctx, HANDLERS_BY_KEY, {})(memoryview(frame))
    assert isinstance(reply, list)
    answer = b"".join(bytes(chunk) for chunk in reply)
    size, correlation_id, error_code, count = struct.unpack_from(">iihi", answer)
    assert (size, correlation_id, error_code, count) == (len(answer) - 4, 42, Error.UNSUPPORTED_VERSION, 1)
    assert struct.unpack_from(">hhh", answer, 14) == (ApiVersionsRequest.api_key, 0, 4)
    assert len(answer) == 20


def test_a_version_that_is_too_new_of_another_api_closes_the_connection(ctx: Context) -> None:
    frame = struct.pack(">hhih", MetadataRequest.api_key, NEWEST, 42, -1) + b"\0"
    with pytest.raises(CloseConnection, match=f"API 3 version {NEWEST}"):
        Dispatcher(ctx, HANDLERS_BY_KEY, {})(memoryview(frame))


def test_a_request_cut_off_by_the_end_of_the_broker_is_no_trouble(ctx: Context) -> None:
    async def never(*_: object) -> None:
        await asyncio.sleep(3600)

    trouble: list[dict[str, Any]] = []
    ctx.loop.set_exception_handler(lambda _, context: trouble.append(context))
    dispatcher = Dispatcher(ctx, HANDLERS_BY_KEY, {MetadataRequest.api_key: never})
    reply = dispatcher(memoryview(encode_request(MetadataRequest(), 12, 1, None)[4:]))
    assert isinstance(reply, Deferred)
    (task,) = asyncio.all_tasks(ctx.loop)
    task.cancel()
    ctx.loop.run_until_complete(asyncio.sleep(0.01))
    assert task.cancelled()
    assert not reply.resolved
    assert not trouble
