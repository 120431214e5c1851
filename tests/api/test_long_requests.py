"""A request with as many elements as the broker takes does not keep other clients waiting."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from time import thread_time
from typing import Any

import pytest

from millrace.api import HANDLERS
from millrace.api.dispatch import Handler
from millrace.deferred import Deferred
from millrace.wire.frames import encode_request
from millrace.wire.messages.produce import ProduceRequest

from ..node import create_topic
from .api import Api
from .long_requests import NAME, Path, array_paths, long_request

# CPU time, which hardly depends on what else the machine does. In one go these requests take up to 1.3 s.
# A pass of the garbage collector over the objects of a request takes up to 0.1 s and cannot be split.
MAX_STALL_SECONDS = 0.15
# Its handler does not take turns (GAPS.md).
IN_ONE_GO = (ProduceRequest,)


def _cases() -> Iterator[Any]:
    for handler in HANDLERS:
        if handler.request in IN_ONE_GO:
            continue
        for path in array_paths(handler.request, handler.highest):
            for distinct in (True, False):
                name = handler.request.__name__.removesuffix("Request")
                kind = "distinct" if distinct else "alike"
                marks = () if distinct else (pytest.mark.slow,)
                yield pytest.param(handler, path, distinct, id=f"{name}-{'.'.join(path)}-{kind}", marks=marks)


@pytest.fixture
def topic(api: Api) -> None:
    create_topic(api, NAME, 100)


@pytest.mark.parametrize(("handler", "path", "distinct"), list(_cases()))
def test_long_request_takes_turns(
    api: Api, topic: None, handler: Handler, path: Path, distinct: bool
) -> None:
    request = long_request(handler.request, handler.highest, path, distinct=distinct)
    frame = encode_request(request, handler.highest, 7, "tests")[4:]
    del request
    stall = api.loop.run_until_complete(_longest_stall(api, frame))
    assert stall < MAX_STALL_SECONDS


async def _longest_stall(api: Api, frame: bytes) -> float:
    """The longest time that the loop is held until a frame has its reply."""
    gc.collect()
    gc.freeze()
    longest = 0.0
    since = thread_time()
    reply = api.dispatcher()(memoryview(frame))
    replies: list[Any] = []
    if isinstance(reply, Deferred):
        reply.then(replies.append)
    else:
        replies.append(reply)
    while True:
        now = thread_time()
        longest = max(longest, now - since)
        if replies:
            gc.unfreeze()
            return longest
        since = now
        await asyncio.sleep(0)
