"""Frames: the length, the header and the body of requests and responses."""

from struct import Struct as Layout
from struct import error as LayoutError
from typing import NamedTuple, TypeVar

from millrace.steps import Steps
from millrace.wire.codec import Chunk, MalformedMessage, decode, encoder, encoder_in_steps
from millrace.wire.schema import Request, Response
from millrace.wire.varint import Buffer, skip_tags

R = TypeVar("R", bound=Response)

API_VERSIONS = 18

_SIZE = Layout(">i")
_SIZE_AND_CORRELATION_ID = Layout(">ii")
_REQUEST_START = Layout(">hhih")

_requests = Request.by_key


class RequestHeader(NamedTuple):
    """The API and version of a request, its client, and the correlation id of the response."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def read_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header of a request frame (without its size), and where the body begins.

    The header of an API that no imported declaration knows is read in its oldest form.
    """
    try:
        api_key, api_version, correlation_id, length = _REQUEST_START.unpack_from(frame, 0)
        position = _REQUEST_START.size
        client_id = None
        if length >= 0:
            end = position + length
            if end > len(frame):
                raise ValueError("client id is cut short")
            client_id = str(frame[position:end], "utf-8")
            position = end
        request = _requests.get(api_key)
        if request is not None and api_version >= request.flexible_from:
            position = skip_tags(frame, position) if frame[position] else position + 1
    except (LayoutError, IndexError, ValueError) as reason:
        raise MalformedMessage(f"request header: {reason}") from None
    # Bypasses NamedTuple's __new__, a Python function: 0.18 instead of 0.33 us for every request.
    return tuple.__new__(RequestHeader, (api_key, api_version, correlation_id, client_id)), position


def encode_response(response: Response, api_version: int, correlation_id: int) -> list[Chunk]:
    """A whole response frame as chunks to be sent in turn; the first is a bytearray."""
    out = bytearray(8)
    if api_version >= response.flexible_from and response.request.api_key != API_VERSIONS:
        out.append(0)
    chunks: list[Chunk] = []
    rest = encoder(type(response), api_version)(response, out, chunks)
    if rest:
        chunks.append(rest)
    size = len(rest) if len(chunks) == 1 else sum(map(len, chunks))
    _SIZE_AND_CORRELATION_ID.pack_into(chunks[0], 0, size - _SIZE.size, correlation_id)
    return chunks


def encode_response_in_steps(response: Response, api_version: int, correlation_id: int) -> Steps[list[Chunk]]:
    """The same as a generator, which yields after each element of a response that may be long."""
    out = bytearray(8)
    if api_version >= response.flexible_from and response.request.api_key != API_VERSIONS:
        out.append(0)
    chunks: list[Chunk] = []
    chunks.append((yield from encoder_in_steps(type(response), api_version)(response, out, chunks)))
    _SIZE_AND_CORRELATION_ID.pack_into(chunks[0], 0, sum(map(len, chunks)) - _SIZE.size, correlation_id)
    return chunks


def encode_request(request: Request, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A whole request frame."""
    name = (client_id or "").encode()
    length = -1 if client_id is None else len(name)
    out = bytearray(_SIZE.size)
    out += _REQUEST_START.pack(request.api_key, api_version, correlation_id, length)
    out += name
    if api_version >= request.flexible_from:
        out.append(0)
    chunks: list[Chunk] = []
    chunks.append(encoder(type(request), api_version)(request, out, chunks))
    frame = bytearray().join(chunks)
    _SIZE.pack_into(frame, 0, len(frame) - _SIZE.size)
    return bytes(frame)


def read_response(response: type[R], api_version: int, frame: Buffer) -> tuple[int, R]:
    """The correlation id and the body of a response frame (without its size)."""
    try:
        (correlation_id,) = _SIZE.unpack_from(frame, 0)
        position = _SIZE.size
        if api_version >= response.flexible_from and response.request.api_key != API_VERSIONS:
            position = skip_tags(frame, position)
    except (LayoutError, IndexError, ValueError) as reason:
        raise MalformedMessage(f"response header: {reason}") from None
    body, _ = decode(response, api_version, frame, position)
    return correlation_id, body
