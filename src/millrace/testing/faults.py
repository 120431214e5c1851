"""Faults for tests: make a chosen API vanish, wait or fail, as networks and brokers do."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from types import GeneratorType
from typing import Any, NoReturn, TypeAlias

from millrace.api import HANDLERS
from millrace.api.context import Context
from millrace.api.dispatch import Handler
from millrace.api.failed_response import failed_response
from millrace.deferred import Deferred
from millrace.errors import Error, KafkaError
from millrace.net.replies import CloseConnection
from millrace.steps import finish

Fault: TypeAlias = "Callable[[Context, Handler, Any], Any]"


def drop(times: int | None = None) -> Fault:
    """Close the connection instead of answering, before anything is done."""

    def intercept(ctx: Context, handler: Handler, request: Any) -> NoReturn:
        raise CloseConnection("dropped by a fault")

    return _limited(intercept, times)


def drop_answer(times: int | None = None) -> Fault:
    """Handle the request, then close the connection instead of answering: the client misses the result."""
    unanswered: set[asyncio.Task[Any]] = set()

    def intercept(ctx: Context, handler: Handler, request: Any) -> NoReturn:
        response = _in_turns(handler.handle(ctx, request))
        if asyncio.iscoroutine(response):
            task = ctx.services.loop.create_task(response)
            unanswered.add(task)  # The loop holds only a weak reference to a task.
            task.add_done_callback(unanswered.discard)
        raise CloseConnection("its answer was dropped by a fault")

    return _limited(intercept, times)


def delay(seconds: float, times: int | None = None) -> Fault:
    """Handle the request at once, and answer later."""

    async def later(response: Any) -> Any:
        await asyncio.sleep(seconds)
        if isinstance(response, Deferred):
            ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            response.then(ready.set_result)
            return await ready
        return await response if asyncio.iscoroutine(response) else response

    def intercept(ctx: Context, handler: Handler, request: Any) -> Any:
        return later(_in_turns(handler.handle(ctx, request)))

    return _limited(intercept, times)


def fail(error: Error, message: str | None = None, times: int | None = None) -> Fault:
    """Answer with an error where this API puts its errors: per partition, per item, or once."""

    def intercept(ctx: Context, handler: Handler, request: Any) -> Any:
        if api_name(handler) not in ("Produce", "Fetch"):
            return failed_response(request, error, message)
        # These handlers know the rest of their response (a session), and when there is none (acks=0).
        broken: Any = _FailingPartitions(error, message)
        services = dataclasses.replace(ctx.services, partitions=broken)
        return handler.handle(ctx._replace(services=services), request)

    return _limited(intercept, times)


def _limited(intercept: Fault, times: int | None) -> Fault:
    """The fault for the first `times` requests, and the handler itself from then on."""
    left = times

    def maybe(ctx: Context, handler: Handler, request: Any) -> Any:
        nonlocal left
        if left is None:
            return intercept(ctx, handler, request)
        if left == 0:
            return handler.handle(ctx, request)
        left -= 1
        return intercept(ctx, handler, request)

    return maybe


def _in_turns(response: Any) -> Any:
    """The response, with a coroutine in place of steps."""
    return finish(response) if isinstance(response, GeneratorType) else response


def api_name(handler: Handler) -> str:
    return handler.name


def api_key(name: str) -> int:
    """The key of an API by its name, such as "Produce"."""
    keys = {api_name(handler): handler.api_key for handler in HANDLERS}
    if name not in keys:
        raise ValueError(f"no API is called {name!r}; there are {', '.join(sorted(keys))}")
    return keys[name]


class _FailingPartitions:
    """Replaces the broker's partitions: every look-up fails."""

    def __init__(self, error: Error, message: str | None) -> None:
        self._error = KafkaError(error, message)

    def leader(self, topic: str, index: int) -> NoReturn:
        raise self._error

    def leader_by_id(self, topic_id: bytes, index: int) -> NoReturn:
        raise self._error

    def topic_name(self, topic_id: bytes) -> NoReturn:
        raise self._error
