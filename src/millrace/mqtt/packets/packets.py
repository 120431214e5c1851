"""Every control packet of MQTT as a value. Fields that only MQTT 5 has keep their default in MQTT 3.1.1."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

from millrace.mqtt.packets.properties import NONE, Properties
from millrace.mqtt.packets.reasons import Reason


class Version(IntEnum):
    """The protocol level in CONNECT."""

    V3_1_1 = 4
    V5 = 5


@dataclass(slots=True)
class Will:
    """The message that the server publishes if the connection ends without DISCONNECT."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = NONE


@dataclass(slots=True)
class Connect:
    client_id: str
    version: Version = Version.V5
    clean_start: bool = True
    keep_alive: int = 0
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = NONE


@dataclass(slots=True)
class Connack:
    reason: Reason = Reason.SUCCESS
    session_present: bool = False
    properties: Properties = NONE


@dataclass(slots=True)
class Publish:
    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    duplicate: bool = False
    packet_id: int = 0
    """0 for QoS 0, which has none."""
    properties: Properties = NONE


@dataclass(slots=True)
class Acknowledgement:
    packet_id: int
    reason: Reason = Reason.SUCCESS
    properties: Properties = NONE


@dataclass(slots=True)
class Puback(Acknowledgement):
    """QoS 1: the message has arrived."""


@dataclass(slots=True)
class Pubrec(Acknowledgement):
    """QoS 2, first answer: the message has arrived."""


@dataclass(slots=True)
class Pubrel(Acknowledgement):
    """QoS 2: the sender will not send the message again."""


@dataclass(slots=True)
class Pubcomp(Acknowledgement):
    """QoS 2: the packet id is free again."""


@dataclass(slots=True)
class Subscription:
    """One topic filter of SUBSCRIBE, with its options."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(slots=True)
class Subscribe:
    packet_id: int
    subscriptions: list[Subscription]
    properties: Properties = NONE


@dataclass(slots=True)
class Suback:
    packet_id: int
    reasons: list[Reason]
    properties: Properties = NONE


@dataclass(slots=True)
class Unsubscribe:
    packet_id: int
    filters: list[str]
    properties: Properties = NONE


@dataclass(slots=True)
class Unsuback:
    packet_id: int
    reasons: list[Reason] = field(default_factory=list)
    """Empty in MQTT 3.1.1."""
    properties: Properties = NONE


@dataclass(slots=True)
class Pingreq:
    pass


@dataclass(slots=True)
class Pingresp:
    pass


@dataclass(slots=True)
class Disconnect:
    reason: Reason = Reason.SUCCESS
    properties: Properties = NONE


@dataclass(slots=True)
class Auth:
    reason: Reason = Reason.SUCCESS
    properties: Properties = NONE


Packet: TypeAlias = (
    Connect
    | Connack
    | Publish
    | Puback
    | Pubrec
    | Pubrel
    | Pubcomp
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)
