"""A session: what the server keeps for one client id, connected or not."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from millrace.mqtt.messages import Message, Source, now_ms
from millrace.mqtt.packets import packets as p
from millrace.mqtt.packets.reasons import Reason
from millrace.mqtt.sessions.feed import Delivery, Feed, Log, delivery

if TYPE_CHECKING:
    import asyncio

    from millrace.mqtt.sessions.share_group import ShareGroup
    from millrace.mqtt.sessions.subscriptions import Subscription

NEVER = 0xFFFF_FFFF
"""The session expiry interval of a session that does not expire."""


class Channel(Protocol):
    """A connection, as its session sees it."""

    receive_maximum: int

    @property
    def is_writable(self) -> bool:
        """Whether the client takes what is sent."""

    def publish(self, delivery: Delivery, packet_id: int, *, duplicate: bool) -> bool:
        """Send a message; False if it is larger than the client accepts."""

    def send(self, packet: p.Packet) -> None: ...

    def close(self, reason: Reason, text: str) -> None:
        """Close the connection, for a reason that is logged and that the client gets."""


class Keeper(Log, Protocol):
    """The parts of the server that a session needs."""

    def save(self, session: Session, then: Callable[[], None] | None = None) -> None:
        """Write the state of a session to the log, soon."""

    def retained_message(self, topic: str) -> Message | None: ...


@dataclass(slots=True)
class InFlight:
    """A message of QoS 1 or 2 that the client has not acknowledged completely."""

    packet_id: int
    qos: int
    source: Source | None
    offset: int
    delivery: Delivery | None
    """None while the client is away: the log has the message."""
    is_released: bool = False
    """QoS 2: the client has the message, and PUBREL follows."""
    is_sent: bool = False
    """On the present connection."""
    is_held: bool = False
    """QoS 2: its packet id is being stored."""
    group: ShareGroup | None = None


class Session:
    """Owned by the event loop."""

    __slots__ = (
        "_is_resending",
        "_keeper",
        "_next_id",
        "channel",
        "client_id",
        "disconnected_ms",
        "expiry",
        "feed",
        "groups",
        "in_flight",
        "is_dirty",
        "is_recorded",
        "is_restoring",
        "received",
        "receiving",
        "retained",
        "timers",
        "will",
    )

    def __init__(self, keeper: Keeper, client_id: str, expiry: int = 0) -> None:
        self._keeper = keeper
        self.client_id = client_id
        self.expiry = expiry
        """Seconds that the session outlives its connection."""
        self.channel: Channel | None = None
        self.feed = Feed(keeper, client_id, self.pump)
        self.groups: dict[str, ShareGroup] = {}
        """Shared subscriptions by their filter."""
        self.in_flight: dict[int, InFlight] = {}
        self.received: set[int] = set()
        """Packet ids of QoS 2 messages that have arrived and are not released."""
        self.receiving: set[int] = set()
        """Packet ids of QoS 2 messages that are being written to the log."""
        self.retained: dict[str, tuple[deque[str], Subscription]] = {}
        """Topics whose retained messages a new subscription is to get, by its filter."""
        self.will: p.Will | None = None
        self.disconnected_ms: int | None = None
        self.timers: list[asyncio.TimerHandle] = []
        """The end of the session and its will, while the client is away."""
        self.is_dirty = False
        self.is_recorded = False
        """Whether the log has a record of the session."""
        self.is_restoring = False
        self._is_resending = False
        self._next_id = 0

    @property
    def is_stored(self) -> bool:
        """Whether the session survives its connection, and a restart of the server."""
        return self.expiry > 0

    # Messages to the client

    def attach(self, channel: Channel) -> None:
        """A client has connected; `resume` starts the messages."""
        self.channel = channel
        self.disconnected_ms = None
        self.cancel_timers()
        for waiting in self.in_flight.values():
            waiting.is_sent = waiting.is_held = False
        self._is_resending = bool(self.in_flight)
        self.is_restoring = True

    def resume(self) -> None:
        """Send messages that were not acknowledged again, then new ones."""
        self.is_restoring = False
        self.feed.resume()
        for group in self.groups.values():
            group.resume()
        self.pump()

    def detach(self) -> None:
        """The client has gone: keep positions, not messages."""
        self.channel = None
        self.disconnected_ms = now_ms()
        self.retained.clear()
        self.feed.pause()
        for waiting in self.in_flight.values():
            waiting.delivery = None
        for group in self.groups.values():
            group.pause_if_deserted()

    def cancel_timers(self) -> None:
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()

    @property
    def is_ready(self) -> bool:
        """Whether another message of QoS 1 or 2 may be sent now."""
        channel = self.channel
        return (
            channel is not None
            and not self.is_restoring
            and channel.is_writable
            and len(self.in_flight) < channel.receive_maximum
        )

    def pump(self) -> None:
        """Send as many messages as the client takes."""
        channel = self.channel
        if channel is None or self.is_restoring:
            return
        if self._is_resending:
            self._resend(channel)
        queue = self.feed.queue
        while channel.is_writable:
            if self.retained:
                if not self.is_ready:
                    break
                self._deliver_retained()
            elif queue and (queue[0].qos == 0 or self.is_ready):
                self.deliver(self.feed.take())
            else:
                break
        self.feed.refill()
        for group in self.groups.values():
            group.pump()

    def deliver(self, found: Delivery, group: ShareGroup | None = None) -> None:
        """Send a message for the first time."""
        channel = self.channel
        assert channel is not None
        message = found.message
        if message.is_expired(now_ms()):
            self._keeper.counters.messages_expired += 1
            return
        if found.qos == 0:
            if not channel.publish(found, 0, duplicate=False):
                self._keeper.counters.messages_dropped += 1
            return
        packet_id = self._free_id()
        entry = InFlight(packet_id, found.qos, message.source, message.offset, found, group=group)
        self.in_flight[packet_id] = entry
        self.is_dirty = True
        if found.qos == 2 and self.is_stored:
            # A repetition after a crash must have the same packet id.
            entry.is_held = True
            self._keeper.save(self, lambda: self._send_held(channel, entry))
        else:
            self._send(channel, entry)

    def _deliver_retained(self) -> None:
        topic_filter, (left, subscription) = next(iter(self.retained.items()))
        topic = left.popleft()
        if not left:
            del self.retained[topic_filter]
        message = self._keeper.retained_message(topic)
        found = None if message is None else delivery(message, [subscription], self.client_id)
        if found is not None:
            found.retain = True
            self.deliver(found)

    def _send_held(self, channel: Channel, entry: InFlight) -> None:
        if self.channel is channel and entry.is_held:
            entry.is_held = False
            self._send(channel, entry)

    def _send(self, channel: Channel, entry: InFlight, *, duplicate: bool = False) -> None:
        entry.is_sent = True
        if entry.is_released:
            channel.send(p.Pubrel(entry.packet_id))
            return
        assert entry.delivery is not None
        if not channel.publish(entry.delivery, entry.packet_id, duplicate=duplicate):
            self._keeper.counters.messages_dropped += 1
            del self.in_flight[entry.packet_id]

    def _resend(self, channel: Channel) -> None:
        """Send again what an earlier connection did not complete, as far as the client takes it."""
        sent = sum(1 for entry in self.in_flight.values() if entry.is_sent)
        for entry in list(self.in_flight.values()):
            if entry.is_sent or entry.is_held:
                continue
            if sent >= channel.receive_maximum or not channel.is_writable:
                return
            self._keeper.counters.messages_resent += 1
            self._send(channel, entry, duplicate=True)
            sent += 1
        self._is_resending = False

    def _free_id(self) -> int:
        while True:
            self._next_id = self._next_id % 0xFFFF + 1
            if self._next_id not in self.in_flight:
                return self._next_id

    # Acknowledgements of the client

    def acknowledged(self, packet_id: int, qos: int) -> None:
        """PUBACK, PUBCOMP, or a PUBREC that refuses the message: it is done."""
        entry = self.in_flight.get(packet_id)
        if entry is not None and entry.qos == qos and entry.is_sent:
            del self.in_flight[packet_id]
            self.is_dirty = True
        self.pump()

    def arrived(self, packet_id: int) -> bool:
        """PUBREC: release the message; False if the packet id is not in use."""
        entry = self.in_flight.get(packet_id)
        channel = self.channel
        if entry is None or entry.qos != 2 or not entry.is_sent or channel is None:
            return False
        entry.is_released = True
        entry.delivery = None
        self.is_dirty = True
        if self.is_stored:
            # Once released, a client takes a repetition of the message for a new one.
            self._keeper.save(self, lambda: self._release(channel, packet_id))
        else:
            self._release(channel, packet_id)
        return True

    def _release(self, channel: Channel, packet_id: int) -> None:
        if self.channel is channel and packet_id in self.in_flight:
            channel.send(p.Pubrel(packet_id))
