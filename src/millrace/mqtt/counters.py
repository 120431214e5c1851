"""Counts of the MQTT server, as families of metrics."""

from __future__ import annotations

from dataclasses import dataclass, fields

from millrace.metrics import Family, Kind, MetricName, single
from millrace.steps import Steps

DOMAIN = "millrace.mqtt"
_GAUGES = frozenset({"connections", "sessions", "retained_messages", "subscriptions"})


@dataclass(slots=True)
class Counters:
    """Plain integers, owned by the server's event loop."""

    connections: int = 0
    sessions: int = 0
    subscriptions: int = 0
    retained_messages: int = 0
    connections_accepted: int = 0
    connections_refused: int = 0
    logins_failed: int = 0
    sessions_taken_over: int = 0
    keep_alive_timeouts: int = 0
    bad_packets: int = 0
    messages_received: int = 0
    bytes_received: int = 0
    messages_written: int = 0
    messages_refused: int = 0
    """Published to a topic without a rule, or too large for the log."""
    write_failures: int = 0
    messages_sent: int = 0
    messages_resent: int = 0
    messages_dropped: int = 0
    """QoS 0, for a client that does not keep up or has a limit below the message's size."""
    messages_expired: int = 0
    records_unmapped: int = 0
    """Records of the log without an MQTT topic."""
    feeds_behind: int = 0
    """Times that a client did not keep up and went on from the log."""
    wills_published: int = 0

    def collect(self) -> Steps[list[Family]]:
        """All counts, as `Metrics.add` expects them."""
        families = []
        for field in fields(self):
            name = "".join(word.capitalize() for word in field.name.split("_"))
            kind = Kind.GAUGE if field.name in _GAUGES else Kind.COUNTER
            families.append(single(MetricName(DOMAIN, "Server", name), kind, getattr(self, field.name)))
        yield
        return families
