"""From a frame to its reply: decode, handle, encode; errors become answers here and nowhere else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from millrace.api.context import Context
from millrace.deferred import Deferred
from millrace.errors import Error, KafkaError
from millrace.net.replies import CloseConnection, LateReply, Reply
from millrace.wire.codec import decoder
from millrace.wire.frames import RequestHeader, encode_response, read_request_header
from millrace.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from millrace.wire.schema import Request, Response

logger = logging.getLogger(__name__)

Handle: TypeAlias = "Callable[[Context, Any], Any]"
"""Returns the response, a Deferred or coroutine of it, or None for no answer."""


@dataclass(frozen=True, slots=True)
class Handler:
    """One API: its request, the versions offered, and the function that answers."""

    request: type[Request]
    handle: Handle
    lowest: int
    highest: int

    @property
    def api_key(self) -> int:
        return int(self.request.api_key)


Interceptor: TypeAlias = "Callable[[Context, Handler, Any], Any]"
"""Stands in for a handler: what tests use to make an API fail, wait or vanish."""


class Dispatcher:
    """Handles the frames of one connection."""

    __slots__ = ("_ctx", "_handlers", "_interceptors")

    def __init__(
        self, ctx: Context, handlers: Mapping[int, Handler], interceptors: Mapping[int, Interceptor]
    ) -> None:
        self._ctx = ctx
        self._handlers = handlers
        self._interceptors = interceptors

    def __call__(self, frame: memoryview) -> Reply | LateReply:
        try:
            header, position = read_request_header(frame)
        except KafkaError as error:
            raise CloseConnection(f"a malformed request header: {error}") from error
        handler = self._handlers.get(header.api_key)
        if handler is None or not handler.lowest <= header.api_version <= handler.highest:
            return self._unsupported(header)
        try:
            request, _ = decoder(handler.request, header.api_version)(frame, position)
        except KafkaError as error:
            raise CloseConnection(f"a malformed request: {error}") from error
        ctx = self._ctx
        ctx.api_version = header.api_version
        ctx.client_id = header.client_id
        try:
            interceptor = self._interceptors.get(header.api_key) if self._interceptors else None
            if interceptor is None:
                response = handler.handle(ctx, request)
            else:
                response = interceptor(ctx, handler, request)
        except Exception as error:
            response = error_response(handler, error)
        if isinstance(response, Response):
            return _encode(response, header)
        if response is None:
            return None
        if isinstance(response, Deferred):
            return self._encode_later(response, handler, header)
        return self._run(response, handler, header)

    def _unsupported(self, header: RequestHeader) -> Reply:
        if header.api_key != ApiVersionsRequest.api_key:
            raise CloseConnection(f"unsupported request: API {header.api_key} version {header.api_version}")
        # The client asks in a version we don't know: it gets ours in the oldest, and asks again.
        response = ApiVersionsResponse(error_code=Error.UNSUPPORTED_VERSION)
        handler = self._handlers[header.api_key]
        own = [version for version in self._ctx.api_versions if version[0] == handler.api_key]
        response.api_keys = list(api_version_ranges(own))
        return encode_response(response, 0, header.correlation_id)

    def _encode_later(self, response: Deferred[Any], handler: Handler, header: RequestHeader) -> LateReply:
        def encode(result: Any) -> Reply | CloseConnection:
            try:
                if isinstance(result, BaseException):
                    result = error_response(handler, result)
                return None if result is None else _encode(result, header)
            except CloseConnection as error:
                return error

        return response.convert(encode)

    def _run(self, response: Coroutine[Any, Any, Any], handler: Handler, header: RequestHeader) -> LateReply:
        task = self._ctx.loop.create_task(response)
        # Not cancelled with its connection: what was begun, such as deleting a topic, is finished.
        outcome: Deferred[Any] = Deferred()

        def resolve(done: asyncio.Task[Any]) -> None:
            # Cancelled by the end of the loop, when nobody is left to answer.
            if not done.cancelled():
                outcome.resolve(done.exception() or done.result())

        task.add_done_callback(resolve)
        return self._encode_later(outcome, handler, header)


def _encode(response: Response, header: RequestHeader) -> Reply:
    try:
        return encode_response(response, header.api_version, header.correlation_id)
    except Exception as error:
        logger.error("a bug: %s cannot be sent", type(response).__name__, exc_info=error)
        raise CloseConnection(f"the broker failed to encode its {type(response).__name__}") from error


def api_version_ranges(ranges: list[tuple[int, int, int]]) -> list[Any]:
    return [ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in ranges]


def error_response(handler: Handler, error: BaseException) -> Any:
    """The response that carries an error which concerns the request as a whole."""
    if isinstance(error, CloseConnection):
        raise error
    if isinstance(error, KafkaError):
        code, message = error.error, error.message
    else:
        logger.error("a bug: %s failed", handler.request.__name__, exc_info=error)
        code, message = Error.UNKNOWN_SERVER_ERROR, "the broker failed to handle the request; see its log"
    response: Any = handler.request.response()
    names = response.wire_fields
    if "error_code" not in names:
        raise CloseConnection(f"{handler.request.__name__} failed: {code.name} {message or ''}")
    response.error_code = code
    if "error_message" in names:
        response.error_message = message
    return response
