"""The control topic of a topology: its driver writes what the workers are to do, and each worker reads it.

The topic holds one record, the newest. It is signed, as frames are: a record of another program is ignored.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from typing import Any

import msgspec
from confluent_kafka import KafkaError

from millrace.topologies.model.errors import TopologyError

logger = logging.getLogger(__name__)

SIGNATURE_BYTES = 32


class Orders(msgspec.Struct, frozen=True):
    """The state that a driver wants its workers to be in."""

    incarnation: str
    """The driver's start that these orders belong to. Workers of earlier ones end."""
    workers: int
    """So that the next driver can fence all of them."""
    active: bool = True
    stopping: bool = False
    """The workers commit and end."""
    debug: dict[str, float] = {}
    """By component: the share of its tuples that are sampled, in percent."""


class Unsigned(TopologyError):
    """A record has no valid signature."""


def topology_key(signing_key: bytes, name: str) -> bytes:
    """The key of one topology: its workers can sign nothing for others, and no jobs."""
    return hmac.digest(signing_key, b"topology:" + name.encode(), hashlib.sha256)


def sign(key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, content, hashlib.sha256) + content


def verified(key: bytes, record: bytes | None) -> bytes:
    """The content of a signed record; raises Unsigned if the signature is not right."""
    signature, content = (record or b"")[:SIGNATURE_BYTES], (record or b"")[SIGNATURE_BYTES:]
    if not hmac.compare_digest(signature, hmac.digest(key, content, hashlib.sha256)):
        raise Unsigned("a record without a valid signature")
    return content


def encode(key: bytes, orders: Orders) -> bytes:
    return sign(key, msgspec.msgpack.encode(orders))


def decode(key: bytes, record: bytes | None) -> Orders:
    return msgspec.msgpack.decode(verified(key, record), type=Orders)


class Control:
    """The orders as one worker knows them. Owned by the worker's loop."""

    def __init__(self, topic: str, key: bytes, incarnation: str) -> None:
        self.topic = topic
        self._key = key
        self._incarnation = incarnation
        self._orders: Orders | None = None
        self._is_current = False

    def note(self, message: Any) -> None:
        """Take up a record of the control topic, or its end."""
        error = message.error()
        if error is not None:
            self._is_current = self._is_current or error.code() == KafkaError._PARTITION_EOF
            return
        try:
            self._orders = decode(self._key, message.value())
        except (Unsigned, msgspec.MsgspecError) as reason:
            logger.warning("%s@%d is ignored: %s", self.topic, message.offset(), reason)

    @property
    def active(self) -> bool:
        """Whether the spouts are to emit: not before the newest orders are known."""
        return self._is_current and (self._orders is None or self._orders.active)

    @property
    def ends(self) -> bool:
        """Whether this worker is to commit and end."""
        orders = self._orders
        if orders is None or not self._is_current or not self._incarnation:
            return False
        # Another incarnation: a new driver has taken over, with workers of its own.
        return orders.stopping or orders.incarnation != self._incarnation

    @property
    def debug(self) -> dict[str, float]:
        return {} if self._orders is None else self._orders.debug
