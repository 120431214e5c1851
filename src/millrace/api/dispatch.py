"""From a frame to its reply: decode, handle, encode.

A short request is decoded, handled and encoded in one go. A long one takes turns with other clients, and only
a few long ones are under way at a time: each has a share of every pass of the loop, and of the memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from types import GeneratorType
from typing import Any, TypeAlias

from millrace.api.authorization import Authorize, handle_authorized
from millrace.api.context import Context, Services, Session
from millrace.api.request_metrics import ApiMetrics
from millrace.api.usage import Usage
from millrace.deferred import Deferred
from millrace.errors import Error, KafkaError
from millrace.net.replies import CloseConnection, LateReply, Reply
from millrace.steps import Steps, finish, take_turn
from millrace.wire.codec import LongRequest, decoder, decoder_in_steps
from millrace.wire.frames import (
    RequestHeader,
    encode_response,
    encode_response_in_steps,
    read_request_header,
)
from millrace.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from millrace.wire.schema import Request, Response

logger = logging.getLogger(__name__)

Handle: TypeAlias = "Callable[[Context, Any], Any]"
"""Returns the response, a Deferred, a coroutine or the `Steps` of it, or None for no response."""


@dataclass(frozen=True, slots=True)
class Handler:
    """One API: its request, the versions offered, and the function that answers."""

    request: type[Request]
    handle: Handle
    lowest: int
    highest: int
    authorize: Authorize
    """The operations that a client must be allowed; `PUBLIC` if there are none."""
    metrics: ApiMetrics = field(default_factory=ApiMetrics, repr=False, compare=False)

    @property
    def api_key(self) -> int:
        return int(self.request.api_key)

    @property
    def name(self) -> str:
        """The API's name, such as "Produce"."""
        return self.request.__name__.removesuffix("Request")


Interceptor: TypeAlias = "Callable[[Context, Handler, Any], Any]"
"""Stands in for a handler: what tests use to make an API fail, wait or vanish."""


class Dispatcher:
    """Handles the frames of one connection."""

    __slots__ = (
        "__weakref__",
        "_begun",
        "_closed",
        "_handlers",
        "_interceptors",
        "_quotas",
        "_received_at",
        "_services",
        "_session",
        "_usage",
    )

    def __init__(
        self,
        services: Services,
        session: Session,
        handlers: Mapping[int, Handler],
        interceptors: Mapping[int, Interceptor],
    ) -> None:
        self._services = services
        self._session = session
        self._handlers = handlers
        self._interceptors = interceptors
        # Whether the long request under way has its place; until then it may be dropped.
        self._begun = False
        # Whether the connection was closed while a task worked on a reply.
        self._closed = False
        # When the request under way came; 0 if its time is not measured.
        self._received_at = 0.0
        self._quotas = services.quotas
        self._usage = Usage(services.quotas, session)

    def offer(self, handlers: Mapping[int, Handler]) -> None:
        """Offer other APIs from the next request on; one that is not offered closes the connection."""
        self._handlers = handlers

    def __call__(self, frame: memoryview) -> Reply | LateReply:
        try:
            header, position = read_request_header(frame)
        except KafkaError as error:
            raise CloseConnection(f"a malformed request header: {error}") from error
        handler = self._handlers.get(header.api_key)
        if handler is None or not handler.lowest <= header.api_version <= handler.highest:
            return self._unsupported(header)
        is_measured = self._quotas.active
        if is_measured and (seconds := self._usage.begin(frame)):
            return self._later(self._when_unmuted(seconds, bytes(frame)), begun=False)
        handler.metrics.requests += 1
        self._received_at = self._services.clock.monotonic() if self._services.metrics.is_watched else 0.0
        try:
            request, _ = decoder(handler.request, header.api_version)(frame, position)
        except LongRequest:
            return self._later(self._long_request(bytes(frame), position, handler, header), begun=False)
        except KafkaError as error:
            raise _malformed(error) from error
        response = self._handle(request, handler, header)
        if is_measured:
            self._usage.handled(request)
        if isinstance(response, Response):
            return self._encode(response, handler, header)
        if response is None:
            return None
        if isinstance(response, Deferred):
            return self._encode_later(response, handler, header)
        if isinstance(response, GeneratorType):
            return self._later(self._long_response(response, handler, header))
        return self._later(self._await_response(response, handler, header))

    def _handle(self, request: Request, handler: Handler, header: RequestHeader) -> Any:
        """The response, or whatever it will come from; all that fits one turn is done."""
        # The class itself would call a Python function.
        ctx = tuple.__new__(Context, (self._services, self._session, header, header.api_version))
        try:
            interceptor = self._interceptors.get(header.api_key) if self._interceptors else None
            if interceptor is None:
                if self._services.authorizer is None:
                    response = handler.handle(ctx, request)
                else:
                    response = handle_authorized(ctx, handler.authorize, handler.handle, request)
            else:
                response = interceptor(ctx, handler, request)
            if isinstance(response, GeneratorType) and (done := take_turn(response)) is not None:
                return done.result
        except Exception as error:
            return error_response(handler, error)
        return response

    def _unsupported(self, header: RequestHeader) -> Reply:
        if header.api_key != ApiVersionsRequest.api_key:
            raise CloseConnection(f"unsupported request: API {header.api_key} version {header.api_version}")
        # The version is unknown here. The client gets ours in the oldest version, and tries again.
        response = ApiVersionsResponse(error_code=Error.UNSUPPORTED_VERSION)
        handler = self._handlers[header.api_key]
        own = [version for version in self._services.api_versions if version[0] == handler.api_key]
        response.api_keys = list(api_version_ranges(own))
        return encode_response(response, 0, header.correlation_id)

    def _encode_later(
        self, response: Deferred[Any], handler: Handler, header: RequestHeader
    ) -> Reply | LateReply:
        if response.resolved:
            try:
                result = response.result()
            except Exception as error:
                result = error_response(handler, error)
            return None if result is None else self._encode(result, handler, header)

        def encode(result: Any) -> Reply | CloseConnection:
            try:
                if isinstance(result, BaseException):
                    result = error_response(handler, result)
                return None if result is None else self._encode(result, handler, header)
            except CloseConnection as error:
                return error

        return response.convert(encode, encode)

    # Requests that take longer than one turn

    async def _long_request(
        self, frame: bytes, position: int, handler: Handler, header: RequestHeader
    ) -> Reply:
        async with self._services.long_requests.place_for(frame):
            self._begun = True
            try:
                decode = decoder_in_steps(handler.request, header.api_version)
                request, _ = await finish(decode(frame, position))
            except KafkaError as error:
                raise _malformed(error) from error
            response = self._handle(request, handler, header)
            if isinstance(response, GeneratorType):
                response = await _finish(response, handler)
            if isinstance(response, Response):
                return await self._encode_in_turns(response, handler, header)
        return await self._reply_later(response, handler, header)

    async def _long_response(self, steps: Steps[Any], handler: Handler, header: RequestHeader) -> Reply:
        async with self._services.long_requests:
            response = await _finish(steps, handler)
            if isinstance(response, Response):
                return await self._encode_in_turns(response, handler, header)
        return await self._reply_later(response, handler, header)

    async def _reply_later(self, response: Any, handler: Handler, header: RequestHeader) -> Reply:
        """The reply to a request that waits for something else now, and has left its place to others."""
        return None if response is None else await self._await_response(response, handler, header)

    async def _await_response(
        self, awaited: Coroutine[Any, Any, Any] | Deferred[Any], handler: Handler, header: RequestHeader
    ) -> Reply:
        try:
            response = await (self._await_deferred(awaited) if isinstance(awaited, Deferred) else awaited)
        except Exception as error:
            response = error_response(handler, error)
        return None if response is None else await self._encode_in_turns(response, handler, header)

    async def _await_deferred(self, response: Deferred[Any]) -> Any:
        # All the work is done but the wait, which may be dropped.
        self._begun = False
        try:
            if self._closed:
                raise asyncio.CancelledError
            return await response
        finally:
            # Without effect unless the task was cancelled.
            response.cancel()

    async def _when_unmuted(self, seconds: float, frame: bytes) -> Reply | CloseConnection:
        """The reply to a request of a client that has to wait because of its quota."""
        await asyncio.sleep(seconds)
        reply = self(memoryview(frame))
        if isinstance(reply, Deferred):
            delayed: Reply | CloseConnection = await self._await_deferred(reply)
            return delayed
        return reply

    # Encoding

    def _encode(self, response: Response, handler: Handler, header: RequestHeader) -> Reply:
        if self._quotas.active:
            self._usage.throttle(response, header.client_id or "")
        try:
            reply = encode_response(response, header.api_version, header.correlation_id)
        except Exception as error:
            raise _unsendable(response, error) from error
        if self._received_at:
            handler.metrics.answered(response, self._services.clock.monotonic() - self._received_at)
        return reply

    async def _encode_in_turns(self, response: Response, handler: Handler, header: RequestHeader) -> Reply:
        if self._quotas.active:
            self._usage.throttle(response, header.client_id or "")
        try:
            reply = await finish(
                encode_response_in_steps(response, header.api_version, header.correlation_id)
            )
        except Exception as error:
            raise _unsendable(response, error) from error
        if self._received_at:
            seconds = self._services.clock.monotonic() - self._received_at
            await finish(handler.metrics.answered_in_steps(response, seconds))
        return reply

    # Tasks

    def _later(self, work: Coroutine[Any, Any, Reply | CloseConnection], *, begun: bool = True) -> LateReply:
        """The reply that a task works on.

        A task is not cancelled with its connection: what was begun, such as deleting a topic, is finished.
        """
        self._begun = begun
        task = self._services.loop.create_task(work)

        def cancel() -> None:
            self._closed = True
            if not self._begun:
                task.cancel()

        outcome: LateReply = Deferred(cancel)

        def resolve(done: asyncio.Task[Reply | CloseConnection]) -> None:
            # Cancelled with its connection, or by the end of the loop.
            if not done.cancelled():
                outcome.resolve(_reply(done.exception() or done.result()))

        task.add_done_callback(resolve)
        return outcome


async def _finish(steps: Steps[Any], handler: Handler) -> Any:
    try:
        return await finish(steps)
    except Exception as error:
        return error_response(handler, error)


def _reply(result: Reply | BaseException) -> Reply | CloseConnection:
    if isinstance(result, BaseException) and not isinstance(result, CloseConnection):
        logger.error("a bug: a request failed", exc_info=result)
        return CloseConnection("the broker failed to handle a request")
    return result


def _malformed(error: KafkaError) -> CloseConnection:
    return CloseConnection(f"a malformed request: {error}")


def _unsendable(response: Response, error: Exception) -> CloseConnection:
    logger.error("a bug: %s cannot be sent", type(response).__name__, exc_info=error)
    return CloseConnection(f"the broker failed to encode its {type(response).__name__}")


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
