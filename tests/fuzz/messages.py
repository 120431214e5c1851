"""Random requests, generated from the declarations, with values that are often meaningful to a broker."""

from __future__ import annotations

import random
import struct
from typing import Any

from millrace.api import HANDLERS
from millrace.api.dispatch import Handler
from millrace.wire.compression import Codec
from millrace.wire.records import CONTROL_BIT, TRANSACTIONAL_BIT, Record, build_batch
from millrace.wire.schema import (
    Array,
    Bytes,
    Field,
    Fixed,
    Nested,
    RecordsType,
    Request,
    String,
    Struct,
    Type,
)

TOPICS = ("fuzzed-0", "fuzzed-1", "fuzzed.2", "fuzzed_2", "", "..", "a" * 249, "a" * 250, "no/such", "\0")
WORDS = (
    *("cleanup.policy", "compact", "delete", "compact,delete", "retention.ms", "-1", "1", "0", "true", "x"),
    *("max.message.bytes", "segment.bytes", "compression.type", "zstd", "gzip", "min.insync.replicas"),
    *("message.timestamp.type", "LogAppendTime", "CreateTime", "flush.messages", "index.interval.bytes"),
    *("log.retention.ms", "99999999999999999999", "NaN", "é", "\U0001f41f", "root", "millrace", "DEBUG"),
)
# Small numbers mean something: a partition, a count, a kind of resource, an epoch.
SMALL = (0, 0, 0, 1, 1, 2, 3, 4, 8, 16, 32, -1, -1, -2, -3, -4, -5, -6)
TIMESTAMPS = (-1, 0, 1_700_000_000_000, 2**62)
ABSURD_NUMBERS = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\0\xff\xff\xff")
LONGEST_ARRAY = 4

# Most requests have one of these values, because others are refused early.
MEANINGFUL: dict[str, tuple[object, ...]] = {
    "acks": (-1, 1, 1, 0, 7),
    "api_key": (0,),
    "committed_leader_epoch": (-1, 0),
    "group_id": ("group-0", "group-1", ""),
    "generation_id": (-1, 0, 1),
    "key": ("group-0", "transactional-0"),
    "key_type": (0, 1, 2),
    "max_wait_ms": (0, 1, 10, -5),
    "member_epoch": (0, 1, -1, -2),
    "member_id": ("", "member-0", "A" * 22),
    "producer_epoch": (0, 1, -1),
    "producer_id": (0, 1, 2, -1),
    "protocol_type": ("consumer",),
    "rebalance_timeout_ms": (10, 50, -1),
    "replication_factor": (1, -1),
    "session_timeout_ms": (10, 50),
    "timeout_ms": (1000, 0),
    "transaction_timeout_ms": (1000, 60_000),
    "transactional_id": ("transactional-0", "transactional-1"),
}
# Never other values: the broker would wait for longer than a test can.
ONLY = ("max_wait_ms", "rebalance_timeout_ms", "session_timeout_ms")


class MessageMaker:
    """Makes random messages; the same seed gives the same messages."""

    def __init__(self, chance: random.Random, topic_ids: tuple[bytes, ...] = ()) -> None:
        self._chance = chance
        self._topic_ids = (*topic_ids, bytes(16), bytes(15) + b"\x01")

    def request(self) -> tuple[Request, int]:
        """A request of any API in any version the broker offers."""
        handler = self._chance.choice(HANDLERS)
        version = self._chance.randint(handler.lowest, handler.highest)
        return self.request_of(handler, version), version

    def request_of(self, handler: Handler, version: int) -> Any:
        return self._struct(handler.request, version)

    def _struct(self, struct_class: type[Struct], version: int) -> Any:
        made = struct_class()
        for name, field in struct_class.wire_fields.items():
            if version in field.versions:
                setattr(made, name, self._field(name, field, version))
        return made

    def _field(self, name: str, field: Field, version: int) -> Any:
        if version in field.nullable and self._chance.random() < 0.2:
            return None
        if name in MEANINGFUL and (name in ONLY or self._chance.random() < 0.8):
            return self._chance.choice(MEANINGFUL[name])
        return self._value(field.type, version)

    def _value(self, kind: Type, version: int) -> Any:
        chance = self._chance
        match kind:
            case Fixed():
                return self._fixed(kind)
            case String():
                words = TOPICS if chance.random() < 0.6 else WORDS
                return chance.choice(words)
            case Bytes():
                return chance.randbytes(chance.choice((0, 1, 16, 300)))
            case RecordsType():
                return self._records()
            case Array():
                count = chance.randint(0, LONGEST_ARRAY)
                return [self._value(kind.element, version) for _ in range(count)]
            case Nested():
                return self._struct(kind.struct, version)
        raise TypeError(kind)

    def _fixed(self, kind: Fixed) -> Any:
        chance = self._chance
        if kind.format == "?":
            return chance.random() < 0.5
        if kind.format == "d":
            return chance.choice((0.0, -1.5, float("inf"), float("nan")))
        if kind.format == "16s":
            return chance.choice(self._topic_ids)
        small = [number for number in SMALL if number >= 0 or kind.format.islower()]
        if chance.random() < 0.8:
            return chance.choice(small)
        (number,) = struct.unpack(">" + kind.format, chance.randbytes(kind.size))
        lowest = struct.unpack(">" + kind.format, b"\x80" + bytes(kind.size - 1))[0]
        highest = struct.unpack(">" + kind.format, b"\x7f" + b"\xff" * (kind.size - 1))[0]
        return chance.choice((number, lowest, highest))

    def _records(self) -> bytes:
        chance = self._chance
        records = [
            Record(
                n,
                chance.choice((-1, 0, 1_700_000_000_000, 2**62)),
                b"k",
                chance.randbytes(chance.randint(0, 50)),
            )
            for n in range(chance.randint(1, 3))
        ]
        producer = chance.choice((-1, 0, 7))
        batch = build_batch(
            records,
            codec=chance.choice((Codec.NONE, *Codec)),
            producer_id=producer,
            producer_epoch=chance.choice((-1, 0, 1)),
            base_sequence=chance.choice((-1, 0, 1, 2**31 - 1)),
            attributes=chance.choice((0, 0, TRANSACTIONAL_BIT, CONTROL_BIT)),
        )
        return damaged(batch, chance) if chance.random() < 0.3 else batch


def damaged(data: bytes, chance: random.Random) -> bytes:
    """The data with some bits flipped, bytes removed or inserted, or an absurd number in it."""
    damage = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        if not damage:
            break
        position = chance.randrange(len(damage))
        match chance.randrange(6):
            case 0 | 1:
                damage[position] ^= 1 << chance.randrange(8)
            case 2:
                del damage[position : position + chance.randint(1, 20)]
            case 3:
                damage[position:position] = chance.randbytes(chance.randint(1, 20))
            case 4:
                absurd = chance.choice(
                    (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\0\xff\xff\xff")
                )
                damage[position : position + 4] = absurd
            case 5:
                damage[position : position + 5] = b"\xff\xff\xff\xff\x0f"
    return bytes(damage)
