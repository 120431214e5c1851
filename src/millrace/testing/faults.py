"""Faults for tests: make a chosen API vanish, wait or fail, as networks and brokers do."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

from millrace.api import HANDLERS
from millrace.api.context import Context
from millrace.api.dispatch import Handler
from millrace.errors import Error, KafkaError
from millrace.net.connection import CloseConnection
from millrace.net.deferred import Deferred

Fault: TypeAlias = "Callable[[Context, Handler, Any], Any]"

# Where an error goes that concerns each item: the request's list, the response's list.
ITEM_LISTS = {
    "CreatePartitions": ("topics", "results"),
    "CreateTopics": ("topics", "topics"),
    "DeleteTopics": ("topics", "responses"),
    "Metadata": ("topics", "topics"),
}


def drop(times: int | None = None) -> Fault:
    """Close the connection instead of answering, before anything is done."""

    def intercept(ctx: Context, handler: Handler, request: Any) -> NoReturn:
        raise CloseConnection("dropped by a fault")

    return _limited(intercept, times)


def drop_answer(times: int | None = None) -> Fault:
    """Do what is asked, then close the connection instead of answering: the client cannot know."""

    def intercept(ctx: Context, handler: Handler, request: Any) -> NoReturn:
        handler.handle(ctx, request)
        raise CloseConnection("its answer was dropped by a fault")

    return _limited(intercept, times)


def delay(seconds: float, times: int | None = None) -> Fault:
    """Do what is asked at once, and answer later."""

    async def later(response: Any) -> Any:
        await asyncio.sleep(seconds)
        if isinstance(response, Deferred):
            ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            response.then(ready.set_result)
            return await ready
        return await response if asyncio.iscoroutine(response) else response

    def intercept(ctx: Context, handler: Handler, request: Any) -> Any:
        return later(handler.handle(ctx, request))

    return _limited(intercept, times)


def fail(error: Error, message: str | None = None, times: int | None = None) -> Fault:
    """Answer with an error where this API puts its errors: per partition, per item, or once."""

    def intercept(ctx: Context, handler: Handler, request: Any) -> Any:
        api = api_name(handler)
        if api in ITEM_LISTS:
            return _fail_items(api, handler, request, error)
        if not _has_error_code(handler.request.response):
            # Its errors are its partitions': each look-up fails.
            broken: Any = _FailingPartitions(error, message)
            return handler.handle(dataclasses.replace(ctx, partitions=broken), request)
        raise KafkaError(error, message)

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


def api_name(handler: Handler) -> str:
    return handler.request.__name__.removesuffix("Request")


def api_key(name: str) -> int:
    """The key of an API by its name, such as "Produce"."""
    keys = {api_name(handler): handler.api_key for handler in HANDLERS}
    if name not in keys:
        raise ValueError(f"no API is called {name!r}; there are {', '.join(sorted(keys))}")
    return keys[name]


class _FailingPartitions:
    """Stands in for the broker's partitions: every look-up fails."""

    def __init__(self, error: Error, message: str | None) -> None:
        self._error = KafkaError(error, message)

    def get(self, topic: str, index: int) -> NoReturn:
        raise self._error

    def topic_name(self, topic_id: bytes) -> NoReturn:
        raise self._error


def _has_error_code(response: type[Any]) -> bool:
    return any(field.name == "error_code" for field in dataclasses.fields(response)) and (
        response.__name__ != "FetchResponse"
    )


def _fail_items(api: str, handler: Handler, request: Any, error: Error) -> Any:
    asked, answered = ITEM_LISTS[api]
    response = handler.request.response()
    item = _item_class(handler.request.response, answered)
    names = [topic.name for topic in getattr(request, asked) or ()] or getattr(request, "topic_names", [])
    setattr(response, answered, [item(name=name, error_code=error) for name in names])
    return response


def _item_class(response: type[Any], field_name: str) -> type[Any]:
    """The struct that a response's list holds, from its declaration."""
    struct: type[Any] = response.wire_fields[field_name].type.element.struct
    return struct
