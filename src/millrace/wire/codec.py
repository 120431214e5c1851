"""Messages to bytes and back, by functions that are generated for each version on its first use."""

from collections.abc import Callable
from typing import Any, TypeVar

from millrace.errors import Error, KafkaError
from millrace.wire.decoding import MalformedMessage, decoder_source
from millrace.wire.encoding import encoder_source
from millrace.wire.schema import Message
from millrace.wire.varint import Buffer

__all__ = ["Chunk", "MalformedMessage", "decode", "decoder", "encode", "encoder"]

M = TypeVar("M", bound=Message)

# A piece of an encoded message: bytes, or an opaque slice of a file that only has a length.
Chunk = Any

Decoder = Callable[[Buffer, int], tuple[M, int]]
Encoder = Callable[[M, bytearray, list[Chunk]], bytearray]

_decoders: dict[tuple[type[Message], int], Decoder[Any]] = {}
_encoders: dict[tuple[type[Message], int], Encoder[Any]] = {}


def decoder(message: type[M], version: int) -> Decoder[M]:
    """The function (buffer, position) -> (message, position after it)."""
    found = _decoders.get((message, version))
    if found is None:
        _check_version(message, version)
        found = _decoders[message, version] = decoder_source(message, version)
    return found


def encoder(message: type[M], version: int) -> Encoder[M]:
    """The function (message, out, chunks) -> the bytearray to go on with.

    Bytes go to the end of `out`. Where large or opaque records come, `out` and the records join `chunks` and
    a new bytearray begins; the one that is returned still has to be added by the caller.
    """
    found = _encoders.get((message, version))
    if found is None:
        _check_version(message, version)
        found = _encoders[message, version] = encoder_source(message, version)
    return found


def decode(message: type[M], version: int, buffer: Buffer, position: int = 0) -> tuple[M, int]:
    """The message at a position of a buffer, and the position after it."""
    return decoder(message, version)(buffer, position)


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
