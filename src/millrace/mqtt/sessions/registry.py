"""All sessions: taken over, ended when they expire, with their wills and subscriptions."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from millrace.mqtt.messages import Message, Positions, now_ms
from millrace.mqtt.packets import packets as p
from millrace.mqtt.packets import topics
from millrace.mqtt.packets.reasons import Reason
from millrace.mqtt.sessions import store
from millrace.mqtt.sessions.session import NEVER, Channel, Session
from millrace.mqtt.sessions.share_group import ShareGroup
from millrace.mqtt.sessions.subscriptions import Subscription

if TYPE_CHECKING:
    from millrace.mqtt.hub import Hub

logger = logging.getLogger(__name__)

ROUNDS = 300
"""Of every so many rounds of storing positions, one is for all connected sessions."""
MAX_FILTER = 4096
"""Characters of a topic filter: every subscription is kept in memory."""


class Sessions:
    """The sessions of the server by client id. Owned by the event loop."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._loop = asyncio.get_running_loop()
        self.by_client: dict[str, Session] = {}
        self.groups: dict[str, ShareGroup] = {}
        self._saved_groups: dict[str, Positions] = {}
        self._rounds = 0

    # The life of a session

    def open(self, connect: p.Connect, channel: Channel, expiry: int) -> tuple[Session, bool]:
        """The session of a client that connects, and whether it was there before."""
        session = self.by_client.get(connect.client_id)
        if session is not None:
            self._take_over(session, ends=connect.clean_start)
            session = self.by_client.get(connect.client_id)
        if session is not None and connect.clean_start:
            self.end(session)
            session = None
        is_present = session is not None
        if session is None:
            session = Session(self._hub, connect.client_id)
            self.by_client[connect.client_id] = session
        session.expiry = expiry
        session.will = connect.will
        session.attach(channel)
        return session, is_present

    def _take_over(self, session: Session, *, ends: bool) -> None:
        channel = session.channel
        if channel is None:
            return
        self._hub.counters.sessions_taken_over += 1
        will = session.will
        if will is not None and not ends and will.properties.will_delay_interval and session.is_stored:
            # The client is back before the delay has passed.
            session.will = None
        channel.close(Reason.SESSION_TAKEN_OVER, "another connection has the same client id")
        self.lost(session, channel)

    def lost(self, session: Session, channel: Channel, *, is_graceful: bool = False) -> None:
        """The connection of a session has ended; gracefully, if its will is not wanted."""
        if session.channel is not channel:
            return
        if is_graceful:
            session.will = None
        if not session.is_stored:
            self.end(session)
            return
        session.detach()
        self._await_return(session)
        self._hub.save(session)

    def _await_return(self, session: Session) -> None:
        """Start the clocks of a session whose client is away."""
        gone_seconds = (now_ms() - (session.disconnected_ms or now_ms())) / 1000
        if session.will is not None:
            delay = min(session.will.properties.will_delay_interval or 0, session.expiry)
            if delay <= gone_seconds:
                self._publish_will(session)
            else:
                later = self._loop.call_later(delay - gone_seconds, self._publish_will_late, session)
                session.timers.append(later)
        if session.expiry != NEVER:
            left = max(0.0, session.expiry - gone_seconds)
            session.timers.append(self._loop.call_later(left, self.end, session))

    def _publish_will_late(self, session: Session) -> None:
        self._publish_will(session)
        self._hub.save(session)

    def _publish_will(self, session: Session) -> None:
        will, session.will = session.will, None
        if will is None:
            return
        self._hub.counters.wills_published += 1
        interval = will.properties.message_expiry_interval
        message = Message(
            will.topic,
            will.payload,
            will.qos,
            will.retain,
            session.client_id,
            will.properties,
            None if interval is None else now_ms() + interval * 1000,
        )
        self._hub.publish(message, lambda reason: None)

    def end(self, session: Session) -> None:
        """Remove a session with all it has; its will is due now at the latest."""
        session.cancel_timers()
        session.channel = None
        for name in list(session.groups):
            self._leave(session, name)
        for topic_filter in session.feed.subscriptions:
            self._hub.tree.remove(session.feed, topic_filter)
        session.feed.pause()
        del self.by_client[session.client_id]
        self._publish_will(session)
        if session.is_recorded:
            self._hub.forget(session)
            for record in store.end_records(session):
                self._hub.write(record)

    # Subscriptions

    def subscribe(self, session: Session, wanted: p.Subscription, identifier: int | None) -> Reason:
        """Add or replace a subscription, and queue the retained messages that it asks for."""
        shared = topics.shared(wanted.filter)
        held = session.feed.subscriptions.get(wanted.filter)
        is_new = held is None and wanted.filter not in session.groups
        if (
            is_new
            and len(session.feed.subscriptions) + len(session.groups) >= self._hub.settings.subscriptions
        ):
            return Reason.QUOTA_EXCEEDED
        if len(wanted.filter) > MAX_FILTER:
            return Reason.TOPIC_FILTER_INVALID
        subscription = Subscription(
            wanted.filter,
            wanted.qos,
            wanted.no_local,
            wanted.retain_as_published,
            identifier,
            self._hub.since_now() if held is None else held.since,
        )
        if shared is not None:
            self._group(shared).join(session, subscription)
            self._group(shared).resume()
            return Reason(wanted.qos)
        session.feed.subscriptions[wanted.filter] = subscription
        self._hub.tree.add(session.feed, subscription)
        if wanted.retain_handling == 0 or (wanted.retain_handling == 1 and is_new):
            # Not bound to the log's positions: the retained message is older than the subscription.
            for_retained = Subscription(
                wanted.filter, wanted.qos, wanted.no_local, wanted.retain_as_published, identifier
            )
            found = deque(self._hub.retained.topics(wanted.filter))
            if found:
                session.retained[wanted.filter] = (found, for_retained)
        return Reason(wanted.qos)

    def _group(self, shared: topics.SharedFilter) -> ShareGroup:
        name = f"$share/{shared.group}/{shared.filter}"
        group = self.groups.get(name)
        if group is None:
            group = self.groups[name] = ShareGroup(self._hub, shared)
            group.subscription.since = self._hub.since_now()
            self._hub.tree.add(group.feed, group.subscription)
        return group

    def unsubscribe(self, session: Session, topic_filter: str) -> Reason:
        if topics.is_shared(topic_filter):
            if topic_filter not in session.groups:
                return Reason.NO_SUBSCRIPTION_EXISTED
            self._leave(session, topic_filter)
            return Reason.SUCCESS
        if session.feed.subscriptions.pop(topic_filter, None) is None:
            return Reason.NO_SUBSCRIPTION_EXISTED
        session.retained.pop(topic_filter, None)
        self._hub.tree.remove(session.feed, topic_filter)
        return Reason.SUCCESS

    def _leave(self, session: Session, name: str) -> None:
        group = session.groups[name]
        group.leave(session)
        if not group.members:
            self._hub.tree.remove(group.feed, group.subscription.filter)
            del self.groups[name]
            if self._saved_groups.pop(name, None) is not None:
                self._hub.write(store.group_end_record(name))

    # The log

    def load(self, stored: store.Stored) -> None:
        """Take over the sessions of an earlier run."""
        for client_id, found in stored.sessions.items():
            session = Session(self._hub, client_id, found.expiry)
            session.is_recorded = True
            session.received = stored.received.get(client_id, set())
            session.feed.is_active = False
            session.feed.behind = store.positions_of(found.position)
            session.disconnected_ms = found.disconnected_ms or now_ms()
            session.will = None if found.will is None else store.will_of(found.will)
            for message in found.in_flight:
                session.in_flight[message.packet_id] = store.message_in_flight(message)
            self.by_client[client_id] = session
            for one in found.subscriptions:
                self._restore_subscription(session, store.subscription_of(one), stored.groups)
        for session in list(self.by_client.values()):
            if session.is_stored:
                self._await_return(session)
            else:
                # Only its will was to survive.
                self.end(session)

    def _restore_subscription(
        self, session: Session, subscription: Subscription, positions: dict[str, Positions]
    ) -> None:
        shared = topics.shared(subscription.filter)
        if shared is None:
            session.feed.subscriptions[subscription.filter] = subscription
            self._hub.tree.add(session.feed, subscription)
            return
        group = self._group(shared)
        group.feed.is_active = False
        group.feed.behind = positions.get(group.name, dict(self._hub.positions))
        group.subscription.since = {}
        self._saved_groups[group.name] = group.feed.behind
        group.join(session, subscription)

    def store_positions(self) -> None:
        """Write the state of sessions and groups that have moved on."""
        # A session without messages moves on too: a restart must not begin far back in the log.
        self._rounds += 1
        is_for_all = self._rounds % ROUNDS == 0
        for session in self.by_client.values():
            is_due = session.is_dirty or (is_for_all and session.channel is not None)
            if is_due and session.is_stored:
                self._hub.save(session)
        for name, group in self.groups.items():
            if group.is_stored:
                position = group.feed.position
                if self._saved_groups.get(name) != position:
                    self._saved_groups[name] = position
                    self._hub.write(store.group_record(group))
