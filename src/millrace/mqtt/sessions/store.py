"""The state of sessions as records of a compacted topic, and back.

A session has one record with its subscriptions, its position in the log and the packet ids in use. Each QoS 2
message that has arrived and is not released has a record of its own, which is written in one transaction with
the message. A group of shared subscriptions has a record with its position.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from millrace.mqtt.messages import Positions, Record, Source
from millrace.mqtt.packets.packets import Will
from millrace.mqtt.packets.properties import Properties
from millrace.mqtt.sessions.session import InFlight, Session
from millrace.mqtt.sessions.share_group import ShareGroup
from millrace.mqtt.sessions.subscriptions import Subscription
from millrace.mqtt.settings import SESSIONS_TOPIC

SESSION, RECEIVED, GROUP = "session", "received", "group"

Places = list[tuple[str, int, int]]
"""Topic, partition and offset."""


class StoredSubscription(msgspec.Struct, omit_defaults=True):
    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    identifier: int | None = None
    since: Places = []


class StoredMessage(msgspec.Struct, omit_defaults=True):
    packet_id: int
    qos: int
    topic: str
    partition: int
    offset: int
    is_released: bool = False


class StoredWill(msgspec.Struct, omit_defaults=True):
    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = Properties()


class StoredSession(msgspec.Struct, omit_defaults=True):
    expiry: int
    subscriptions: list[StoredSubscription] = []
    position: Places = []
    in_flight: list[StoredMessage] = []
    will: StoredWill | None = None
    disconnected_ms: int | None = None


class StoredGroup(msgspec.Struct):
    position: Places


class Stored(NamedTuple):
    """Everything that a start finds in the log."""

    sessions: dict[str, StoredSession]
    received: dict[str, set[int]]
    groups: dict[str, Positions]


_session_of = msgspec.json.Decoder(StoredSession).decode
_group_of = msgspec.json.Decoder(StoredGroup).decode
_encode = msgspec.json.Encoder().encode


def session_record(session: Session) -> Record:
    position = session.feed.position
    will = session.will
    stored = StoredSession(
        session.expiry,
        [_stored_subscription(one, position) for one in _subscriptions(session)],
        _places(position),
        [_stored_message(entry) for entry in session.in_flight.values() if entry.source is not None],
        None if will is None else _stored_will(will),
        session.disconnected_ms,
    )
    return _record((SESSION, session.client_id), _encode(stored))


def _subscriptions(session: Session) -> Iterable[Subscription]:
    yield from session.feed.subscriptions.values()
    for name, group in session.groups.items():
        mine = group.members[session]
        yield Subscription(
            name, mine.qos, retain_as_published=mine.retain_as_published, identifier=mine.identifier
        )


def _stored_subscription(one: Subscription, position: Positions) -> StoredSubscription:
    # The session reads from its position on: what lies before needs no bound.
    since = {source: offset for source, offset in one.since.items() if offset > position.get(source, 0)}
    return StoredSubscription(
        one.filter, one.qos, one.no_local, one.retain_as_published, one.identifier, _places(since)
    )


def _stored_message(entry: InFlight) -> StoredMessage:
    assert entry.source is not None
    return StoredMessage(entry.packet_id, entry.qos, *entry.source, entry.offset, entry.is_released)


def _stored_will(will: Will) -> StoredWill:
    return StoredWill(will.topic, will.payload, will.qos, will.retain, will.properties)


def subscription_of(stored: StoredSubscription) -> Subscription:
    return Subscription(
        stored.filter,
        stored.qos,
        stored.no_local,
        stored.retain_as_published,
        stored.identifier,
        positions_of(stored.since),
    )


def message_in_flight(stored: StoredMessage) -> InFlight:
    source = Source(stored.topic, stored.partition)
    return InFlight(stored.packet_id, stored.qos, source, stored.offset, None, stored.is_released)


def will_of(stored: StoredWill) -> Will:
    return Will(stored.topic, stored.payload, stored.qos, stored.retain, stored.properties)


def received_record(client_id: str, packet_id: int, *, is_received: bool) -> Record:
    """The note that a QoS 2 message has arrived, or its end."""
    return _record((RECEIVED, client_id, packet_id), b"1" if is_received else None)


def group_record(group: ShareGroup) -> Record:
    return _record((GROUP, group.name), _encode(StoredGroup(_places(group.feed.position))))


def end_records(session: Session) -> list[Record]:
    """The records that remove a session."""
    notes = [received_record(session.client_id, each, is_received=False) for each in session.received]
    return [_record((SESSION, session.client_id), None), *notes]


def group_end_record(name: str) -> Record:
    return _record((GROUP, name), None)


def _record(key: tuple[Any, ...], value: bytes | None) -> Record:
    return Record(SESSIONS_TOPIC, _encode(key), value, [])


def _places(positions: Positions) -> Places:
    return [(source.topic, source.partition, offset) for source, offset in positions.items()]


def positions_of(places: Places) -> Positions:
    return {Source(topic, partition): offset for topic, partition, offset in places}


def replay(records: Iterable[Any]) -> Stored:
    """The newest state in the records of the sessions' topic."""
    values: dict[bytes, bytes | None] = {}
    for record in records:
        values.pop(record.key(), None)
        if record.value() is not None:
            values[record.key()] = record.value()
    stored = Stored({}, {}, {})
    for key, value in values.items():
        kind, name, *rest = msgspec.json.decode(key)
        if kind == SESSION:
            stored.sessions[name] = _session_of(value or b"")
        elif kind == RECEIVED:
            stored.received.setdefault(name, set()).add(rest[0])
        elif kind == GROUP:
            stored.groups[name] = positions_of(_group_of(value or b"").position)
    return stored
