"""A group of sessions that share a subscription: each message goes to one of them."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from millrace.mqtt.packets.topics import SharedFilter
from millrace.mqtt.sessions.feed import Feed, Log
from millrace.mqtt.sessions.subscriptions import Subscription

if TYPE_CHECKING:
    from millrace.mqtt.sessions.session import Session


class ShareGroup:
    """The members take turns; one that is away or has enough to do is passed over."""

    def __init__(self, log: Log, shared: SharedFilter) -> None:
        self.name = f"$share/{shared.group}/{shared.filter}"
        self.feed = Feed(log, "", self.pump)
        # The QoS of each member counts when a message is sent to it.
        self.feed.subscriptions[shared.filter] = Subscription(shared.filter, qos=2, retain_as_published=True)
        self.members: dict[Session, Subscription] = {}
        self._order: deque[Session] = deque()

    @property
    def subscription(self) -> Subscription:
        return next(iter(self.feed.subscriptions.values()))

    @property
    def is_stored(self) -> bool:
        return any(member.is_stored for member in self.members)

    def join(self, session: Session, subscription: Subscription) -> None:
        if session not in self.members:
            self._order.append(session)
        self.members[session] = subscription
        session.groups[self.name] = self

    def leave(self, session: Session) -> None:
        """Remove a member; messages that it has not acknowledged go to the others."""
        del self.members[session]
        del session.groups[self.name]
        self._order.remove(session)
        unfinished = [
            entry
            for entry in session.in_flight.values()
            if entry.group is self and entry.delivery is not None and not entry.is_released
        ]
        for entry in unfinished:
            del session.in_flight[entry.packet_id]
        self.feed.put_back(entry.delivery for entry in reversed(unfinished) if entry.delivery is not None)
        self.pause_if_deserted()
        self.pump()

    def pump(self) -> None:
        """Send as many messages as the members take."""
        queue = self.feed.queue
        while queue:
            member = self._next_member()
            if member is None:
                return
            found = self.feed.take()
            mine = self.members[member]
            identifiers = () if mine.identifier is None else (mine.identifier,)
            retain = found.retain and mine.retain_as_published
            qos = min(found.qos, mine.qos)
            member.deliver(replace(found, qos=qos, retain=retain, identifiers=identifiers), self)
        self.feed.refill()

    def _next_member(self) -> Session | None:
        for _ in range(len(self._order)):
            member = self._order[0]
            self._order.rotate(-1)
            if member.is_ready:
                return member
        return None

    def resume(self) -> None:
        if not self.feed.is_active:
            self.feed.resume()

    def pause_if_deserted(self) -> None:
        """Keep the position only, once no member is connected."""
        if self.feed.is_active and all(member.channel is None for member in self.members):
            self.feed.pause()
