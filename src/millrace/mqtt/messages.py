"""Messages, and the records of the log that keep them.

The payload is the record's value. User properties are its headers; other properties are headers whose names
start with `mqtt.`. A record without such headers, as any Kafka producer writes it, is a message with QoS 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from millrace.mqtt.packets import topics
from millrace.mqtt.packets.properties import NONE, Properties
from millrace.mqtt.packets.reasons import PacketError

if TYPE_CHECKING:
    from millrace.mqtt.rules import Rules

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]

OURS = "mqtt."
ESCAPED = "mqtt.user."
"""Before the name of a user property that starts with `mqtt.` itself."""
QOS, RETAIN, CLIENT, TOPIC, EXPIRY = "mqtt.qos", "mqtt.retain", "mqtt.client", "mqtt.topic", "mqtt.expiry"
CONTENT_TYPE, RESPONSE_TOPIC = "mqtt.content-type", "mqtt.response-topic"
CORRELATION, FORMAT = "mqtt.correlation-data", "mqtt.payload-format"
DEFAULT_QOS = 1
NEVER_EXPIRES = 0xFFFF_FFFF


class Source(NamedTuple):
    """A partition of the log."""

    topic: str
    partition: int


Positions: TypeAlias = dict[Source, int]
"""The next offset of each partition."""


class Record(NamedTuple):
    """A record to write."""

    topic: str
    key: bytes
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]]


@dataclass(slots=True)
class Message:
    """A message as it is in the log."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    publisher: str | None = None
    """The client id of its sender; None for records of Kafka producers."""
    properties: Properties = NONE
    """Those that travel with the message."""
    expires_ms: int | None = None
    source: Source | None = None
    offset: int = 0

    @property
    def size(self) -> int:
        return len(self.payload) + len(self.topic) + 100

    def is_expired(self, now_ms: float) -> bool:
        return self.expires_ms is not None and self.expires_ms <= now_ms


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def record_of(message: Message, rules: Rules) -> Record | None:
    """The record that keeps a message, or None if no rule lets it into the log."""
    place = rules.place(message.topic)
    if place is None:
        return None
    headers = headers_of(message)
    # A rule's key may not lead back to the topic, or lead to another one.
    if rules.name(place.topic, place.key) != message.topic:
        headers.append((TOPIC, message.topic.encode()))
    return Record(place.topic, place.key.encode(), message.payload, headers)


def headers_of(message: Message) -> list[tuple[str, str | bytes | None]]:
    headers: list[tuple[str, str | bytes | None]] = []
    if message.publisher is not None:
        headers.append((CLIENT, message.publisher.encode()))
    if message.qos != DEFAULT_QOS:
        headers.append((QOS, b"%d" % message.qos))
    if message.retain:
        headers.append((RETAIN, b"1"))
    extra = message.properties
    if extra is NONE:
        return headers
    if extra.message_expiry_interval is not None:
        headers.append((EXPIRY, b"%d" % extra.message_expiry_interval))
    if extra.content_type is not None:
        headers.append((CONTENT_TYPE, extra.content_type.encode()))
    if extra.response_topic is not None:
        headers.append((RESPONSE_TOPIC, extra.response_topic.encode()))
    if extra.correlation_data is not None:
        headers.append((CORRELATION, extra.correlation_data))
    if extra.payload_format_indicator is not None:
        headers.append((FORMAT, b"%d" % extra.payload_format_indicator))
    for name, value in extra.user_properties:
        headers.append((ESCAPED + name if name.startswith(OURS) else name, value.encode()))
    return headers


def message_of(topic: str, value: bytes | None, headers: Headers, timestamp_ms: int) -> Message:
    """The message that a record keeps. Headers that MQTT cannot carry are left out."""
    message = Message(topic, value or b"", DEFAULT_QOS)
    fields: dict[str, Any] = {}
    user: list[tuple[str, str]] = []
    for name, content in headers:
        content = content or b""
        if name == CLIENT:
            message.publisher = _text(content)
        elif name == QOS:
            message.qos = _number(content, 2, DEFAULT_QOS)
        elif name == RETAIN:
            message.retain = content == b"1"
        elif name == EXPIRY:
            message.expires_ms = timestamp_ms + _number(content, NEVER_EXPIRES, NEVER_EXPIRES) * 1000
        elif name in _PROPERTIES:
            field, parse = _PROPERTIES[name]
            fields[field] = parse(content)
        elif not name.startswith(OURS) or name.startswith(ESCAPED):
            name_text, value_text = _text(name.encode()), _text(content)
            if name_text is not None and value_text is not None:
                user.append((name_text.removeprefix(ESCAPED), value_text))
    if user:
        fields["user_properties"] = tuple(user)
    if fields:
        message.properties = Properties(**fields)
    return message


def topic_of(rules: Rules, log_topic: str, key: bytes | None, headers: Headers) -> str | None:
    """The MQTT topic of a record, or None if it has none."""
    named = next((content or b"" for name, content in headers if name == TOPIC), None)
    if named is not None:
        return _name(named)
    try:
        name = rules.name(log_topic, (key or b"").decode())
    except UnicodeDecodeError:
        return None
    return None if name is None else _name(name.encode())


def _text(content: bytes) -> str | None:
    if len(content) > 0xFFFF:
        return None
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _name(content: bytes) -> str | None:
    text = _text(content)
    try:
        topics.check_name(text or "")
    except PacketError:
        return None
    return text


def _number(content: bytes, largest: int, otherwise: int) -> int:
    number = int(content) if content.isdigit() and len(content) <= 10 else otherwise
    return number if number <= largest else otherwise


_PROPERTIES: dict[str, tuple[str, Callable[[bytes], Any]]] = {
    CONTENT_TYPE: ("content_type", _text),
    RESPONSE_TOPIC: ("response_topic", _name),
    CORRELATION: ("correlation_data", lambda content: content if len(content) <= 0xFFFF else None),
    FORMAT: ("payload_format_indicator", lambda content: _number(content, 1, 0)),
}
