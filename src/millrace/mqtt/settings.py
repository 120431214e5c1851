"""Settings of the MQTT server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millrace.mqtt.rules import Rules, default_rules

SESSIONS_TOPIC = "__mqtt_sessions"
RETAINED_TOPIC = "__mqtt_retained"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The log to use, and the bounds of each client."""

    bootstrap: str
    name: str = "mqtt"
    """Names the server towards the log. Two servers with one name shut each other out."""
    rules: Rules = field(default_factory=default_rules)
    properties: Mapping[str, str] = field(default_factory=dict)
    """Further properties of the Kafka clients, under librdkafka's names."""
    max_packet_size: int = 1_000_000
    """Below the 1 MiB that a broker accepts, with room for keys and headers."""
    receive_maximum: int = 100
    """Messages of QoS 1 and 2 that a client may send before the first is acknowledged."""
    topic_alias_maximum: int = 32
    in_flight: int = 100
    """Messages of QoS 1 and 2 that a client gets before it acknowledges the first."""
    queued_messages: int = 1000
    """Messages that wait in memory for one client; beyond that it reads from the log at its own pace."""
    queued_bytes: int = 1 << 20
    unwritten_bytes: int = 1 << 20
    """Bytes of one client on their way into the log; beyond that the server reads no more from it."""
    subscriptions: int = 1000
    """Subscriptions of one client."""
    max_keep_alive: int = 0
    """The longest keep-alive in seconds that clients of MQTT 5 may use; 0: any, or none."""
    connect_seconds: float = 10.0
    """The time that a new connection has for its CONNECT."""
    store_seconds: float = 1.0
    """Positions of sessions are stored at this interval; a crash repeats QoS 1 messages since then."""
