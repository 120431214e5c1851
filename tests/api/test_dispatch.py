"""Dispatch: from a frame to its reply."""

import asyncio
from typing import Any

from millrace.api import HANDLERS_BY_KEY
from millrace.api.context import Context
from millrace.api.dispatch import Dispatcher
from millrace.net.deferred import Deferred
from millrace.wire.frames import encode_request
from millrace.wire.messages.metadata import MetadataRequest


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
