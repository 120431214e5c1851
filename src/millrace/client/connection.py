"""One connection to a broker: version negotiation, requests and their responses."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from struct import Struct as Layout
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from millrace import __version__
from millrace.client.address import Address
from millrace.client.errors import ApiNotOffered, BrokerUnreachable, ConnectionLost, ResponseTimeout
from millrace.client.metadata import NO_NODE
from millrace.clock import Clock
from millrace.errors import Error, check
from millrace.timers import LoopTimers, Timers
from millrace.wire.codec import MalformedMessage
from millrace.wire.frames import encode_request, read_response
from millrace.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millrace.wire.schema import Request, Response

if TYPE_CHECKING:
    import ssl

R = TypeVar("R", bound=Response)

CLIENT_ID = "millrace"
CONNECT_SECONDS = 10.0
REQUEST_SECONDS = 60.0
# A frame that claims more does not come from a Kafka broker.
MAX_RESPONSE_BYTES = 1 << 30

_SIZE_AND_CORRELATION_ID = Layout(">ii")
_UNSUPPORTED_VERSION = Error.UNSUPPORTED_VERSION.to_bytes(2, "big")


@dataclass(frozen=True, slots=True)
class Security:
    """Security of connections; none by default.

    `tls` encrypts them. `authenticate` proves the client's identity on each new connection, after the version
    negotiation and before any other request.
    """

    tls: ssl.SSLContext | None = None
    authenticate: Callable[[Connection], Awaitable[None]] | None = None


PLAIN = Security()


class Connection:
    """A connection to one broker. Several requests may be under way; responses come in their order.

    Requests are sent in the highest version that both sides speak. After a failure the connection is closed;
    `Client` opens another one.
    """

    def __init__(self, address: Address, frames: _Frames, client_id: str) -> None:
        self.address = address
        self.node_id = NO_NODE
        """The broker's id, if the client has chosen the broker by it."""
        self.api_versions: dict[int, tuple[int, int]] = {}
        self._frames = frames
        self._client_id = client_id
        self._correlation_ids = itertools.count(1)

    @classmethod
    async def open(
        cls,
        address: Address,
        *,
        client_id: str = CLIENT_ID,
        timeout_seconds: float = REQUEST_SECONDS,
        security: Security = PLAIN,
        clock: Clock | None = None,
        timers: Timers | None = None,
    ) -> Self:
        """Connect, agree on versions and authenticate. Raises KafkaError, mostly BrokerUnreachable.

        `clock` and `timers` measure the time that responses take; by default the machine's.
        """
        if timers is None:
            timers = LoopTimers(asyncio.get_running_loop())
        deadlines = Deadlines(timeout_seconds, clock or Clock(), timers)
        frames = await _connect(address, security, deadlines)
        connection = cls(address, frames, client_id)
        try:
            connection.api_versions = await connection._negotiate()
            if security.authenticate is not None:
                await security.authenticate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return self._frames.failure is None

    def close(self) -> None:
        """Close the connection; requests under way fail with ConnectionLost."""
        self._frames.fail(ConnectionLost(f"the connection to {self.address} is closed"))

    def offers(self, request: type[Request], lowest: int = 0) -> bool:
        """Whether both sides speak the API in a common version, from `lowest` on."""
        version = self.version_of(request)
        return version is not None and version >= lowest

    def version_of(self, request: type[Request], highest: int | None = None) -> int | None:
        """The highest version that both sides speak, up to `highest`; None if there is none."""
        their_lowest, their_highest = self.api_versions.get(request.api_key, (0, -1))
        best = min(their_highest, request.versions[-1] if highest is None else highest)
        return best if best >= max(their_lowest, request.versions[0]) else None

    async def send(
        self, request: Request, expect: type[R], *, lowest: int = 0, highest: int | None = None
    ) -> R:
        """Send a request and return its response.

        `lowest` is the first version that can express the request; ApiNotOffered is raised if the broker
        does not reach it. `highest` keeps to a version although newer ones are known.
        """
        version = self.version_of(type(request), highest)
        name = type(request).__name__.removesuffix("Request")
        if version is None:
            raise ApiNotOffered(f"the broker at {self.address} does not offer {name}")
        if version < lowest:
            raise ApiNotOffered(f"the broker at {self.address} offers {name} only up to version {version}")
        return await self.send_in(version, request, expect)

    async def send_in(self, version: int, request: Request, expect: type[R]) -> R:
        """Send a request in exactly this version, offered or not, and return its response."""
        frame = await self._exchange(version, request)
        return self._decode(version, expect, frame)

    async def _negotiate(self) -> dict[int, tuple[int, int]]:
        request = ApiVersionsRequest(client_software_name="millrace", client_software_version=__version__)
        version = request.versions[-1]
        frame = await self._exchange(version, request)
        if frame[4:6] == _UNSUPPORTED_VERSION:
            # An older broker responds in version 0, and only says that it does not know the one it was sent.
            version = 0
            frame = await self._exchange(version, request)
        response = self._decode(version, ApiVersionsResponse, frame)
        check(response.error_code)
        return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    async def _exchange(self, version: int, request: Request) -> memoryview:
        correlation_id = next(self._correlation_ids)
        frame = encode_request(request, version, correlation_id, self._client_id)
        return await self._frames.send(frame, correlation_id)

    def _decode(self, version: int, expect: type[R], frame: memoryview) -> R:
        try:
            _, response = read_response(expect, version, frame)
        except MalformedMessage as fault:
            failure = ConnectionLost(f"{self.address} sent a response that cannot be read: {fault.message}")
            self._frames.fail(failure)
            raise failure from fault
        return response


class _Request(NamedTuple):
    """A request under way."""

    correlation_id: int
    response: asyncio.Future[memoryview]
    deadline: float


class Deadlines(NamedTuple):
    """The time that a response may take, and the timers that measure it."""

    timeout_seconds: float
    clock: Clock
    timers: Timers


class _Frames(asyncio.Protocol):
    """Sends request frames and matches the responses, which a broker sends in the order of the requests."""

    def __init__(self, address: Address, deadlines: Deadlines) -> None:
        self.failure: ConnectionLost | ResponseTimeout | None = None
        self._address = address
        self._timeout_seconds, self._clock, self._timers = deadlines
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._under_way: deque[_Request] = deque()
        self._is_timed = False
        self._has_received = False
        # The pieces of an unfinished frame, and how many bytes to wait for before looking at them.
        self._pieces: list[bytes] = []
        self._missing = 0

    def send(self, frame: bytes, correlation_id: int) -> asyncio.Future[memoryview]:
        """Send a request; the future gets its response without the size."""
        if self.failure is not None:
            raise _copy(self.failure)
        response: asyncio.Future[memoryview] = self._loop.create_future()
        deadline = self._clock.monotonic() + self._timeout_seconds
        self._under_way.append(_Request(correlation_id, response, deadline))
        if not self._is_timed:
            self._check_in(self._timeout_seconds)
        self._transport.write(frame)
        return response

    def _check_in(self, seconds: float) -> None:
        self._is_timed = True
        self._timers.schedule(self, seconds * 1000, self._check_deadline)

    def _check_deadline(self) -> None:
        """Give the broker up if the oldest request is overdue; its late response would hold up all others."""
        self._is_timed = False
        if not self._under_way:
            return
        seconds_left = self._under_way[0].deadline - self._clock.monotonic()
        if seconds_left <= 0:
            self.fail(ResponseTimeout(f"the broker at {self._address} did not respond in time"))
        else:
            self._check_in(seconds_left)

    def fail(self, failure: ConnectionLost | ResponseTimeout) -> None:
        """Close the connection; whatever is under way fails. Only the first failure counts."""
        if self.failure is not None:
            return
        self.failure = failure
        self._pieces.clear()
        self._timers.cancel(self)
        if self._transport is not None:
            self._transport.abort()
        while self._under_way:
            request = self._under_way.popleft()
            if not request.response.done():
                request.response.set_exception(_copy(failure))

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        reason = f": {exc.strerror}" if isinstance(exc, OSError) and exc.strerror else ""
        hint = "" if self._has_received else "; is it a Kafka broker's port?"
        self.fail(ConnectionLost(f"{self._address} closed the connection{reason}{hint}"))

    def data_received(self, data: bytes) -> None:
        if self.failure is not None:
            return
        if len(data) < self._missing:
            self._pieces.append(data)
            self._missing -= len(data)
            return
        if self._pieces:
            data = b"".join((*self._pieces, data))
            self._pieces.clear()
        rest = self._take_responses(data)
        self._pieces = [rest] if rest else []

    def _take_responses(self, data: bytes) -> bytes:
        """Hand out the whole responses; return what is left, after noting how much it lacks."""
        view, position = memoryview(data), 0
        while len(data) - position >= _SIZE_AND_CORRELATION_ID.size:
            size, correlation_id = _SIZE_AND_CORRELATION_ID.unpack_from(data, position)
            if not self._is_expected(size, correlation_id):
                message = (
                    f"{self._address} sent something else than a Kafka response; is it a Kafka broker's port?"
                )
                self.fail(ConnectionLost(message))
                return b""
            self._has_received = True
            end = position + 4 + size
            if end > len(data):
                self._missing = end - len(data)
                return data[position:]
            response = self._under_way.popleft().response
            # The caller may have been cancelled.
            if not response.done():
                response.set_result(view[position + 4 : end])
            position = end
        self._missing = _SIZE_AND_CORRELATION_ID.size - (len(data) - position)
        return data[position:]

    def _is_expected(self, size: int, correlation_id: int) -> bool:
        return (
            4 <= size <= MAX_RESPONSE_BYTES
            and bool(self._under_way)
            and correlation_id == self._under_way[0].correlation_id
        )


def _copy(failure: ConnectionLost | ResponseTimeout) -> Exception:
    """Each caller raises an exception of its own: raising adds to the traceback."""
    return type(failure)(failure.message)


async def _connect(address: Address, security: Security, deadlines: Deadlines) -> _Frames:
    loop = asyncio.get_running_loop()
    host, port = address
    failure: OSError | None = None
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            for family, ip in await _resolve(host, port):
                try:
                    _, frames = await loop.create_connection(
                        lambda: _Frames(address, deadlines),
                        ip,
                        port,
                        family=family,
                        ssl=security.tls,
                        server_hostname=host if security.tls else None,
                    )
                except OSError as error:
                    failure = error
                else:
                    return frames
    except TimeoutError:
        raise BrokerUnreachable(
            f"no broker at {address}: no connection within {CONNECT_SECONDS:.0f} s"
        ) from None
    raise BrokerUnreachable(f"no broker at {address}: {_reason(failure)}") from None


async def _resolve(host: str, port: int) -> list[tuple[int, str]]:
    """The addresses of a host; a number is resolved without a thread."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except socket.gaierror:
            raise BrokerUnreachable(
                f"no broker at {Address(host, port)}: the host name does not resolve; check the address"
            ) from None
    return [(family, str(where[0])) for family, _, _, _, where in found]


def _reason(failure: OSError | None) -> str:
    if isinstance(failure, ConnectionRefusedError):
        return "connection refused; start one with `millrace up`"
    return "the host has no address" if failure is None else failure.strerror or str(failure)
