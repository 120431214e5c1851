"""Frames: tuples for one task of another worker, as one record of the log.

A frame holds what one turn of the emitting worker produced for the task. It is signed: a topic that others
can write is input, not code, and a frame without a valid signature is not read.
"""

from __future__ import annotations

import hashlib
import hmac
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.serializers import has_serializers, serializer_named, serializer_of

SIGNATURE_BYTES = 16
_PICKLED = 1
_REGISTERED = 2


class Sent(NamedTuple):
    """A tuple on its way between workers."""

    component: str
    stream: str
    task: int
    values: Sequence[Any]
    edges: Mapping[int, int] | None


@dataclass(slots=True)
class Acks:
    """Messages of one turn of a worker to the acker of another, merged by tree."""

    done: dict[int, int] = field(default_factory=dict)
    """By tree: the XOR of the edges that are acked or new."""
    failed: dict[int, str] = field(default_factory=dict)
    """By tree: why it failed."""
    resets: set[int] = field(default_factory=set)
    """Trees whose time-out begins again."""


class Values:
    """Values as bytes: MessagePack, with pickle for other types where the topology allows it."""

    def __init__(self, *, allows_pickle: bool = False) -> None:
        self._allows_pickle = allows_pickle
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._encode_other)
        self._decoder = msgspec.msgpack.Decoder(ext_hook=self._decode_other, strict=False)

    def encode(self, value: Any) -> bytes:
        try:
            return self._encoder.encode(self._with_serializers(value) if has_serializers() else value)
        except OverflowError:
            raise TopologyError(
                "an integer of more than 64 bits cannot be sent to another worker or kept in state; "
                "write it as text"
            ) from None

    def _with_serializers(self, value: Any) -> Any:
        """The value with registered classes replaced: MessagePack would write dataclasses its own way."""
        if isinstance(value, (list, tuple)):
            return [self._with_serializers(item) for item in value]
        if isinstance(value, dict):
            return {key: self._with_serializers(item) for key, item in value.items()}
        return value if serializer_of(value) is None else self._encode_other(value)

    def decode(self, content: bytes | memoryview) -> Any:
        return self._decoder.decode(content)

    def decode_key(self, content: bytes | memoryview) -> Any:
        """A key of a state: a tuple comes back as a tuple, since a list cannot be a key."""
        return _as_key(self._decoder.decode(content))

    def _encode_other(self, value: Any) -> Any:
        serializer = serializer_of(value)
        if serializer is not None:
            content = self._encoder.encode([serializer.name, serializer.encode(value)])
            return msgspec.msgpack.Ext(_REGISTERED, content)
        if not self._allows_pickle:
            name = type(value).__name__
            raise TopologyError(
                f"a value of type {name} cannot be sent to another worker or kept in state; use plain ones, "
                f"call register_serializer({name}, encode, decode), or set topology.allow.pickle to true"
            )
        return msgspec.msgpack.Ext(_PICKLED, pickle.dumps(value))

    def _decode_other(self, code: int, content: memoryview) -> Any:
        if code == _REGISTERED:
            name, plain = self._decoder.decode(content)
            serializer = serializer_named(name)
            if serializer is None:
                raise TopologyError(f"a value of {name} was received, which has no registered serializer")
            return serializer.decode(plain)
        if code != _PICKLED or not self._allows_pickle:
            raise TopologyError("a pickled value was received, but topology.allow.pickle is not set")
        return pickle.loads(content)


class Frames:
    """Encodes and decodes frames with a key that the workers of a topology share."""

    def __init__(self, key: bytes, values: Values) -> None:
        self._key = key
        self._values = values

    def encode(self, tuples: Sequence[Sent]) -> bytes:
        content = self._values.encode(
            [(sent.component, sent.stream, sent.task, sent.values, _pairs(sent.edges)) for sent in tuples]
        )
        return self._signature(content) + content

    def decode(self, frame: bytes) -> list[Sent]:
        """The tuples of a frame; raises TopologyError if it is not signed by this topology."""
        return [
            Sent(component, stream, task, values, None if edges is None else dict(edges))
            for component, stream, task, values, edges in self._values.decode(self._checked(frame))
        ]

    def encode_acks(self, acks: Acks) -> bytes:
        content = self._values.encode([list(acks.done.items()), list(acks.failed.items()), list(acks.resets)])
        return self._signature(content) + content

    def decode_acks(self, frame: bytes) -> Acks:
        """The acks of a frame; raises TopologyError if it is not signed by this topology."""
        done, failed, resets = self._values.decode(self._checked(frame))
        return Acks(dict(done), dict(failed), set(resets))

    def _checked(self, frame: bytes) -> memoryview:
        signature, content = frame[:SIGNATURE_BYTES], memoryview(frame)[SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._signature(content)):
            raise TopologyError("a frame without a valid signature; another program wrote to an edge topic")
        return content

    def _signature(self, content: bytes | memoryview) -> bytes:
        return hmac.digest(self._key, content, hashlib.sha256)[:SIGNATURE_BYTES]


def _as_key(value: Any) -> Any:
    return tuple(_as_key(item) for item in value) if isinstance(value, list) else value


def _pairs(edges: Mapping[int, int] | None) -> list[tuple[int, int]] | None:
    return None if edges is None else list(edges.items())
