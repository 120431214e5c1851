"""Layout of printed records: that of Kafka's default formatter."""

import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millrace.cli.terminal.errors import CommandError

Deserializer = Callable[[bytes], bytes]

_TIMESTAMP_TYPES = {1: b"CreateTime", 2: b"LogAppendTime"}


def _unpacked(layout: str) -> Deserializer:
    def deserialize(content: bytes) -> bytes:
        try:
            return str(struct.unpack(layout, content)[0]).encode()
        except struct.error:
            size = struct.calcsize(layout)
            raise CommandError(f"a field of {len(content)} bytes is not a number of {size} bytes") from None

    return deserialize


DESERIALIZERS: dict[str, Deserializer] = {
    "StringDeserializer": bytes,
    "ByteArrayDeserializer": bytes,
    "BytesDeserializer": bytes,
    "LongDeserializer": _unpacked(">q"),
    "IntegerDeserializer": _unpacked(">i"),
    "ShortDeserializer": _unpacked(">h"),
    "DoubleDeserializer": _unpacked(">d"),
    "FloatDeserializer": _unpacked(">f"),
    "BooleanDeserializer": lambda content: b"true" if content == b"\x01" else b"false",
    "UUIDDeserializer": lambda content: str(uuid.UUID(content.decode())).encode(),
}


def deserializer(class_name: str | None) -> Deserializer:
    """The deserializer with a Java class name; text is printed unchanged."""
    if class_name is None:
        return bytes
    simple_name = class_name.rpartition(".")[2]
    if simple_name not in DESERIALIZERS:
        raise CommandError(
            f"the deserializer {class_name} is not supported; supported are {', '.join(DESERIALIZERS)}"
        )
    return DESERIALIZERS[simple_name]


@dataclass(slots=True)
class RecordFormat:
    """The parts of a record to print, and the separators between them."""

    print_timestamp: bool = False
    print_partition: bool = False
    print_offset: bool = False
    print_delivery: bool = False
    print_epoch: bool = False
    print_headers: bool = False
    print_key: bool = False
    print_value: bool = True
    key_separator: bytes = b"\t"
    line_separator: bytes = b"\n"
    headers_separator: bytes = b","
    null_literal: bytes = b"null"
    key: Deserializer = bytes
    value: Deserializer = bytes
    header: Deserializer = bytes

    @classmethod
    def from_properties(cls, properties: dict[str, str]) -> "RecordFormat":
        """Read settings such as print.key=true; settings of custom formatters are ignored."""
        shape = cls()
        for field in cls.__dataclass_fields__.values():
            text = properties.get(field.name.replace("_", "."))
            if text is not None and isinstance(field.default, bool):
                setattr(shape, field.name, text.strip().lower() == "true")
            elif text is not None and isinstance(field.default, bytes):
                setattr(shape, field.name, text.encode())
        shape.key = deserializer(properties.get("key.deserializer"))
        shape.value = deserializer(properties.get("value.deserializer"))
        shape.header = deserializer(properties.get("headers.deserializer"))
        return shape

    def format(self, message: Any) -> bytes:
        """Format a message of confluent-kafka."""
        parts = []
        if self.print_timestamp:
            parts.append(_timestamp(message))
        if self.print_partition:
            parts.append(b"Partition:%d" % message.partition())
        if self.print_offset:
            parts.append(b"Offset:%d" % message.offset())
        if self.print_delivery:
            parts.append(b"Delivery:NOT_PRESENT")
        if self.print_epoch:
            epoch = message.leader_epoch()
            parts.append(b"Epoch:NOT_PRESENT" if epoch is None else b"Epoch:%d" % epoch)
        if self.print_headers:
            parts.append(self._headers(message))
        if self.print_key:
            parts.append(self._field(message.key(), self.key))
        if self.print_value:
            parts.append(self._field(message.value(), self.value))
        return self.key_separator.join(parts) + self.line_separator if parts else b""

    def _headers(self, message: Any) -> bytes:
        headers = message.headers()
        if not headers:
            return b"NO_HEADERS"
        return self.headers_separator.join(
            name.encode() + b":" + self._field(content, self.header) for name, content in headers
        )

    def _field(self, content: bytes | None, deserialize: Deserializer) -> bytes:
        return self.null_literal if content is None else deserialize(content)


def _timestamp(message: Any) -> bytes:
    kind, milliseconds = message.timestamp()
    name = _TIMESTAMP_TYPES.get(kind)
    return b"NO_TIMESTAMP" if name is None else b"%s:%d" % (name, milliseconds)
