"""Messages to bytes and back, by functions that are generated for each version on its first use."""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from millrace.errors import Error, KafkaError
from millrace.steps import Steps, finish_at_once
from millrace.wire.decoding import LongRequest, MalformedMessage, decoder_source
from millrace.wire.encoding import encoder_source
from millrace.wire.schema import Message
from millrace.wire.varint import Buffer

__all__ = [
    "Chunk",
    "LongRequest",
    "MalformedMessage",
    "decode",
    "decoder",
    "decoder_in_steps",
    "encode",
    "encoder",
    "encoder_in_steps",
]

M = TypeVar("M", bound=Message)

# A piece of an encoded message: bytes, or an opaque slice of a file that only has a length.
Chunk = Any

Decoder = Callable[[Buffer, int], tuple[M, int]]
Encoder = Callable[[M, bytearray, list[Chunk]], bytearray]


@cache
def decoder(message: type[Message], version: int) -> Decoder[Any]:
    """The function (buffer, position) -> (message, position after it).

    It raises LongRequest for a request that has to be decoded in steps.
    """
    _check_version(message, version)
    return decoder_source(message, version)


@cache
def decoder_in_steps(message: type[Message], version: int) -> Callable[[Buffer, int], Steps[tuple[Any, int]]]:
    """The same as a generator, which yields after each element."""
    _check_version(message, version)
    return decoder_source(message, version, in_steps=True)


@cache
def encoder(message: type[Message], version: int) -> Encoder[Any]:
    """The function (message, out, chunks) -> the bytearray to continue with.

    Bytes go to the end of `out`. Where large or opaque records come, `out` and the records join `chunks` and
    a new bytearray begins; the one that is returned still has to be added by the caller.
    """
    _check_version(message, version)
    return encoder_source(message, version)


@cache
def encoder_in_steps(
    message: type[Message], version: int
) -> Callable[[Any, bytearray, list[Chunk]], Steps[bytearray]]:
    """The same as a generator, which yields after each element."""
    _check_version(message, version)
    return encoder_source(message, version, in_steps=True)


def decode(message: type[M], version: int, buffer: Buffer, position: int = 0) -> tuple[M, int]:
    """The message at a position of a buffer, and the position after it."""
    decoded: tuple[M, int]
    try:
        decoded = decoder(message, version)(buffer, position)
    except LongRequest:
        decoded = finish_at_once(decoder_in_steps(message, version)(buffer, position))
    return decoded


def encode(message: Message, version: int, before: bytes = b"") -> bytes:
    """The bytes of a message whose records, if it has any, are bytes too; `before` comes first."""
    chunks: list[Chunk] = []
    rest = encoder(type(message), version)(message, bytearray(before), chunks)
    return b"".join([*chunks, rest]) if chunks else bytes(rest)


def _check_version(message: type[Message], version: int) -> None:
    if version not in message.versions:
        first, last = message.versions[0], message.versions[-1]
        raise KafkaError(
            Error.UNSUPPORTED_VERSION, f"{message.__name__} has versions {first} to {last}, not {version}"
        )
