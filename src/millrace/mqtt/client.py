"""One connected client: its packets, from CONNECT to the end of its connection."""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millrace.mqtt.messages import Message, now_ms
from millrace.mqtt.packets import packets as p
from millrace.mqtt.packets.packets import Version
from millrace.mqtt.packets.properties import NONE, Properties
from millrace.mqtt.packets.reasons import PacketError, Reason
from millrace.mqtt.sessions.session import NEVER, Session

if TYPE_CHECKING:
    from millrace.mqtt.connection import Connection
    from millrace.mqtt.hub import Hub
    from millrace.mqtt.passwords import Authenticator
    from millrace.mqtt.sessions.registry import Sessions

logger = logging.getLogger(__name__)

KEEP_ALIVE_FACTOR = 1.5
MAX_CLIENT_ID = 1024


class _Unacknowledged:
    """A QoS 1 message on its way into the log."""

    __slots__ = ("packet_id", "reason")

    def __init__(self, packet_id: int) -> None:
        self.packet_id = packet_id
        self.reason: Reason | None = None


class ConnectedClient:
    """Handles the packets of one connection. Owned by the event loop."""

    __slots__ = (
        "_aliases",
        "_authenticator",
        "_connection",
        "_hub",
        "_is_graceful",
        "_session",
        "_sessions",
        "_unacknowledged",
        "_unwritten_bytes",
        "_unwritten_messages",
    )

    def __init__(
        self, connection: Connection, hub: Hub, sessions: Sessions, authenticator: Authenticator
    ) -> None:
        self._connection = connection
        self._hub = hub
        self._sessions = sessions
        self._authenticator = authenticator
        self._session: Session | None = None
        self._is_graceful = False
        self._aliases: dict[int, str] = {}
        self._unacknowledged: deque[_Unacknowledged] = deque()
        self._unwritten_bytes = 0
        self._unwritten_messages = 0

    def handle(self, packet: p.Packet) -> None:
        if self._session is None:
            if not isinstance(packet, p.Connect):
                raise PacketError("the first packet is not CONNECT", Reason.PROTOCOL_ERROR)
            self._connect(packet)
            return
        handle = _HANDLERS.get(type(packet))
        if handle is None:
            raise PacketError(f"{type(packet).__name__.upper()} is out of place", Reason.PROTOCOL_ERROR)
        handle(self, packet, self._session)

    def writable(self) -> None:
        if self._session is not None:
            self._session.pump()

    def closed(self) -> None:
        if self._session is not None:
            self._sessions.lost(self._session, self._connection, is_graceful=self._is_graceful)

    # CONNECT and DISCONNECT

    def _connect(self, packet: p.Connect) -> None:
        connection = self._connection
        connection.version = packet.version
        connection.pause("busy")
        self._hub.spawn(self._connect_checked(packet))

    async def _connect_checked(self, packet: p.Connect) -> None:
        try:
            reason = await self._objection(packet)
            if reason is not None:
                self._refuse(packet, reason)
            else:
                await self._accept(packet)
        except Exception:
            logger.exception("%s could not connect", self._connection)
            if self._session is None:
                self._refuse(packet, Reason.SERVER_UNAVAILABLE)
            else:
                self._connection.close(
                    Reason.UNSPECIFIED_ERROR, "the session could not be stored or restored"
                )

    async def _objection(self, packet: p.Connect) -> Reason | None:
        """The reason to refuse a client, or None."""
        if packet.properties.authentication_method is not None:
            return Reason.BAD_AUTHENTICATION_METHOD
        if len(packet.client_id) > MAX_CLIENT_ID or (
            not packet.client_id and packet.version is Version.V3_1_1 and not packet.clean_start
        ):
            return Reason.CLIENT_IDENTIFIER_NOT_VALID
        if not await self._authenticator.allows(packet.username, packet.password):
            self._hub.counters.logins_failed += 1
            return Reason.BAD_USER_NAME_OR_PASSWORD if packet.username else Reason.NOT_AUTHORIZED
        if packet.will is not None and self._hub.settings.rules.place(packet.will.topic) is None:
            return Reason.TOPIC_NAME_INVALID
        return None

    def _refuse(self, packet: p.Connect, reason: Reason) -> None:
        self._hub.counters.connections_refused += 1
        name = reason.name.lower().replace("_", " ")
        logger.warning("refusing %s (client %r): %s", self._connection, packet.client_id[:100], name)
        self._connection.send(p.Connack(reason))
        self._connection.finish()

    async def _accept(self, packet: p.Connect) -> None:
        connection, settings = self._connection, self._hub.settings
        if connection.is_closed:
            return
        is_assigned = not packet.client_id
        if is_assigned:
            packet.client_id = f"millrace-{secrets.token_hex(8)}"
        connection.label = packet.client_id
        keep_alive = packet.keep_alive
        is_limited = settings.max_keep_alive and not 0 < keep_alive <= settings.max_keep_alive
        if is_limited and packet.version is Version.V5:
            keep_alive = settings.max_keep_alive
        connection.keep_alive_seconds = keep_alive * KEEP_ALIVE_FACTOR
        extra = packet.properties
        if extra.receive_maximum is not None:
            connection.receive_maximum = min(extra.receive_maximum, settings.in_flight)
        connection.max_packet_size = extra.maximum_packet_size
        session, is_present = self._sessions.open(packet, connection, _expiry(packet))
        self._session = session
        if session.is_stored or session.will is not None or session.is_recorded:
            await self._hub.saved(session)
        self._hub.counters.connections_accepted += 1
        connection.send(
            p.Connack(
                session_present=is_present,
                properties=Properties(
                    assigned_client_identifier=packet.client_id if is_assigned else None,
                    server_keep_alive=keep_alive if keep_alive != packet.keep_alive else None,
                    receive_maximum=settings.receive_maximum,
                    topic_alias_maximum=settings.topic_alias_maximum,
                    maximum_packet_size=settings.max_packet_size,
                ),
            )
        )
        await self._hub.restore(session)
        if session.channel is connection:
            session.resume()
        connection.resume("busy")

    def _disconnect(self, packet: p.Disconnect, session: Session) -> None:
        expiry = packet.properties.session_expiry_interval
        if expiry is not None:
            if expiry and not session.expiry:
                raise PacketError(
                    "DISCONNECT makes a session last that CONNECT did not", Reason.PROTOCOL_ERROR
                )
            session.expiry = expiry
        self._is_graceful = packet.reason is not Reason.DISCONNECT_WITH_WILL
        self._connection.finish()

    # Messages of the client

    def _publish(self, packet: p.Publish, session: Session) -> None:
        hub = self._hub
        hub.counters.messages_received += 1
        hub.counters.bytes_received += len(packet.payload)
        topic = self._topic(packet)
        message = _message(packet, topic, session.client_id)
        if packet.qos == 0:
            self._writing(len(packet.payload))
            hub.publish(message, lambda reason: self._written_unacknowledged(packet, reason))
        elif packet.qos == 1:
            self._check_quota(session)
            self._writing(len(packet.payload))
            entry = _Unacknowledged(packet.packet_id)
            self._unacknowledged.append(entry)
            hub.publish(message, lambda reason: self._written(packet, entry, reason))
        else:
            self._publish_once(packet, message, session)

    def _topic(self, packet: p.Publish) -> str:
        """The topic of a message, which may be known by an alias only."""
        alias = packet.properties.topic_alias
        if alias is None:
            return packet.topic
        if alias > self._hub.settings.topic_alias_maximum or (
            not packet.topic and alias not in self._aliases
        ):
            raise PacketError(f"topic alias {alias} is not known", Reason.TOPIC_ALIAS_INVALID)
        if packet.topic:
            self._aliases[alias] = packet.topic
        return self._aliases[alias]

    def _check_quota(self, session: Session) -> None:
        if self._connection.version is not Version.V5:
            return
        in_use = len(self._unacknowledged) + len(session.received) + len(session.receiving)
        if in_use >= self._hub.settings.receive_maximum:
            raise PacketError("more messages than the receive maximum", Reason.RECEIVE_MAXIMUM_EXCEEDED)

    def _writing(self, size: int) -> None:
        """Count a message on its way, and read no more from a client that has too many."""
        self._unwritten_bytes += size
        self._unwritten_messages += 1
        if self._is_ahead():
            self._connection.pause("unwritten")

    def _is_ahead(self) -> bool:
        settings = self._hub.settings
        return (
            self._unwritten_bytes > settings.unwritten_bytes
            or self._unwritten_messages > settings.queued_messages
        )

    def _done_writing(self, size: int) -> None:
        self._unwritten_bytes -= size
        self._unwritten_messages -= 1
        if not self._is_ahead():
            self._connection.resume("unwritten")

    def _written_unacknowledged(self, packet: p.Publish, reason: Reason) -> None:
        self._done_writing(len(packet.payload))
        if reason is Reason.TOPIC_NAME_INVALID:
            self._connection.close(reason, f"no rule lets topic {packet.topic[:100]!r} into the log")

    def _written(self, packet: p.Publish, entry: _Unacknowledged, reason: Reason) -> None:
        """Acknowledge QoS 1 messages in the order in which they came."""
        entry.reason = reason
        self._done_writing(len(packet.payload))
        while self._unacknowledged and self._unacknowledged[0].reason is not None:
            first = self._unacknowledged.popleft()
            assert first.reason is not None
            if self._may_report(first.reason):
                self._connection.send(p.Puback(first.packet_id, first.reason))

    def _may_report(self, reason: Reason) -> bool:
        """Whether an acknowledgement can carry this reason; MQTT 3.1.1 can only close the connection."""
        if reason.is_failure and self._connection.version is Version.V3_1_1:
            self._connection.close(reason, "a message was not written")
            return False
        return True

    def _publish_once(self, packet: p.Publish, message: Message, session: Session) -> None:
        """QoS 2: write a message unless its packet id is in use."""
        packet_id = packet.packet_id
        if packet_id in session.received:
            self._connection.send(p.Pubrec(packet_id))
            return
        if packet_id in session.receiving:
            return
        self._check_quota(session)
        self._writing(len(packet.payload))
        session.receiving.add(packet_id)

        def written(reason: Reason) -> None:
            self._done_writing(len(packet.payload))
            session.receiving.discard(packet_id)
            if not reason.is_failure:
                session.received.add(packet_id)
            # The client may have connected again in the meantime.
            if session.channel is not None and self._may_report(reason):
                session.channel.send(p.Pubrec(packet_id, reason))

        if session.is_stored:
            self._hub.publish_once(message, session, packet_id, written)
        else:
            self._hub.publish(message, written)

    def _pubrel(self, packet: p.Pubrel, session: Session) -> None:
        packet_id = packet.packet_id
        if packet_id not in session.received:
            is_v5 = self._connection.version is Version.V5
            reason = Reason.PACKET_IDENTIFIER_NOT_FOUND if is_v5 else Reason.SUCCESS
            self._connection.send(p.Pubcomp(packet_id, reason))
            return

        def forgotten() -> None:
            session.received.discard(packet_id)
            self._connection.send(p.Pubcomp(packet_id))

        self._hub.forget_received(session, packet_id, forgotten)

    # Acknowledgements and subscriptions of the client

    def _puback(self, packet: p.Puback, session: Session) -> None:
        session.acknowledged(packet.packet_id, 1)

    def _pubcomp(self, packet: p.Pubcomp, session: Session) -> None:
        session.acknowledged(packet.packet_id, 2)

    def _pingreq(self, packet: p.Pingreq, session: Session) -> None:
        self._connection.send(p.Pingresp())

    def _pubrec(self, packet: p.Pubrec, session: Session) -> None:
        if packet.reason.is_failure:
            session.acknowledged(packet.packet_id, 2)
        elif not session.arrived(packet.packet_id):
            is_v5 = self._connection.version is Version.V5
            reason = Reason.PACKET_IDENTIFIER_NOT_FOUND if is_v5 else Reason.SUCCESS
            self._connection.send(p.Pubrel(packet.packet_id, reason))

    def _subscribe(self, packet: p.Subscribe, session: Session) -> None:
        identifier = next(iter(packet.properties.subscription_identifiers), None)
        reasons = [self._sessions.subscribe(session, wanted, identifier) for wanted in packet.subscriptions]
        self._after_saving(session, p.Suback(packet.packet_id, reasons))

    def _unsubscribe(self, packet: p.Unsubscribe, session: Session) -> None:
        reasons = [self._sessions.unsubscribe(session, topic_filter) for topic_filter in packet.filters]
        self._after_saving(session, p.Unsuback(packet.packet_id, reasons))

    def _after_saving(self, session: Session, packet: p.Suback | p.Unsuback) -> None:
        """Answer when the log has the subscriptions, if the session is to survive a crash."""

        def answer() -> None:
            self._connection.send(packet)
            session.pump()

        if session.is_stored:
            self._hub.save(session, answer)
        else:
            answer()


def _expiry(packet: p.Connect) -> int:
    if packet.version is Version.V3_1_1:
        return 0 if packet.clean_start else NEVER
    return packet.properties.session_expiry_interval or 0


def _message(packet: p.Publish, topic: str, client_id: str) -> Message:
    extra = packet.properties
    expires_ms = None
    if extra is not NONE:
        if extra.message_expiry_interval is not None:
            expires_ms = now_ms() + extra.message_expiry_interval * 1000
        extra = Properties(
            payload_format_indicator=extra.payload_format_indicator,
            message_expiry_interval=extra.message_expiry_interval,
            content_type=extra.content_type,
            response_topic=extra.response_topic,
            correlation_data=extra.correlation_data,
            user_properties=extra.user_properties,
        )
    return Message(topic, packet.payload, packet.qos, packet.retain, client_id, extra, expires_ms)


_HANDLERS: dict[type, Callable[[ConnectedClient, Any, Session], None]] = {
    p.Publish: ConnectedClient._publish,
    p.Puback: ConnectedClient._puback,
    p.Pubrec: ConnectedClient._pubrec,
    p.Pubrel: ConnectedClient._pubrel,
    p.Pubcomp: ConnectedClient._pubcomp,
    p.Subscribe: ConnectedClient._subscribe,
    p.Unsubscribe: ConnectedClient._unsubscribe,
    p.Pingreq: ConnectedClient._pingreq,
    p.Disconnect: ConnectedClient._disconnect,
}
"""The packets that a connected client may send."""
