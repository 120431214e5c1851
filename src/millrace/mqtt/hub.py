"""The hub: between connected clients, their sessions and the log. Owned by the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from millrace.mqtt.counters import Counters
from millrace.mqtt.log.follower import Follower
from millrace.mqtt.log.reading import Readers
from millrace.mqtt.log.topics import prepare_topics
from millrace.mqtt.log.transactions import Transactions
from millrace.mqtt.log.uplink import Uplink, Written
from millrace.mqtt.messages import Message, Positions, Record, Source, now_ms, record_of
from millrace.mqtt.packets.reasons import Reason
from millrace.mqtt.sessions import store
from millrace.mqtt.sessions.feed import Delivery, Feed, Turn, message_in, read_turn
from millrace.mqtt.sessions.retained import Retained, retained_record
from millrace.mqtt.sessions.session import Session
from millrace.mqtt.sessions.subscriptions import SubscriptionTree
from millrace.mqtt.settings import RETAINED_TOPIC, SESSIONS_TOPIC, Settings

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
SAVE_SECONDS = 60.0

Outcome: TypeAlias = Callable[[Reason], None]


class Hub:
    """Writes what clients publish, and hands new records of the log to the feeds that want them."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.counters = Counters()
        self.positions: Positions = {}
        self.tree: SubscriptionTree[Feed] = SubscriptionTree()
        self.retained = Retained()
        self._loop = asyncio.get_running_loop()
        self._uplink = Uplink(settings, self._loop)
        self._transactions = Transactions(settings, self._loop)
        self._readers = Readers(settings)
        self._follower: Follower | None = None
        self._acknowledged: Positions = {}
        self._saving: dict[Session, list[Callable[[], None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> store.Stored:
        """Load retained messages, and follow the log; returns the sessions that it has.

        Raises LogUnavailable.
        """
        await asyncio.to_thread(prepare_topics, self.settings)
        # Before anything is read: a transaction of an earlier server is still open after a kill -9.
        await self._transactions.start()
        ends = await asyncio.to_thread(prepare_topics, self.settings)
        to_read = self.settings.rules.topics_to_read
        self.positions = {source: offset for source, offset in ends.items() if source.topic in to_read}
        sessions, retained = Source(SESSIONS_TOPIC, 0), Source(RETAINED_TOPIC, 0)
        await self._readers.run(
            lambda records: self.retained.load(records({retained: 0}, {retained: ends[retained]}))
        )
        stored = await self._readers.run(
            lambda records: store.replay(records({sessions: 0}, {sessions: ends[sessions]}))
        )
        self._follower = Follower(self.settings, self._loop, dict(self.positions), self._route)
        return stored

    async def close(self) -> None:
        """Finish writing, and leave the log."""
        self._flush()
        if self._follower is not None:
            await self._follower.close()
        for task in self._tasks:
            task.cancel()
        await self._transactions.close()
        await self._uplink.close()
        await self._readers.close()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work beside the caller's."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # From clients to the log

    def publish(self, message: Message, done: Outcome) -> None:
        """Write a message; `done` gets the reason once every in-sync replica has it."""
        records = self._records(message)
        if not records:
            done(self._refused(message))
            return
        left = len(records)
        worst = Reason.SUCCESS

        def written(record: Record, outcome: Written) -> None:
            nonlocal left, worst
            left -= 1
            worst = max(worst, self._note(message, record, outcome))
            if left == 0:
                done(worst)

        for record in records:
            self._uplink.send(record, partial(written, record))

    def publish_once(self, message: Message, session: Session, packet_id: int, done: Outcome) -> None:
        """Write a message and the note that its packet id has arrived, both or none."""
        records = self._records(message)
        if not records:
            done(self._refused(message))
            return
        note = store.received_record(session.client_id, packet_id, is_received=True)

        def written(outcome: Written) -> None:
            reason = self._note(message, records[0], outcome)
            if not reason.is_failure and len(records) > 1:
                self.retained.put(replace(message, source=None))
            done(reason)

        self._transactions.send([*records, note], written)

    def forget_received(self, session: Session, packet_id: int, done: Callable[[], None]) -> None:
        """Remove the note that a packet id has arrived; `done` is called when the log has it."""
        if not session.is_stored:
            done()
            return

        def written(outcome: Written) -> None:
            if outcome.error is None:
                done()
            else:
                logger.warning(
                    "a packet id of %s could not be released: %s", session.client_id, outcome.error
                )

        self._uplink.send(store.received_record(session.client_id, packet_id, is_received=False), written)

    def _records(self, message: Message) -> list[Record]:
        """The record of a message, and the retained one; none if no rule lets it into the log."""
        record = record_of(message, self.settings.rules)
        if record is None:
            return []
        return [record, retained_record(message)] if message.retain else [record]

    def _refused(self, message: Message) -> Reason:
        self.counters.messages_refused += 1
        logger.info("no rule lets topic %r of client %s into the log", message.topic, message.publisher)
        return Reason.TOPIC_NAME_INVALID

    def _note(self, message: Message, record: Record, outcome: Written) -> Reason:
        """Count a write, and act on it."""
        if outcome.error is not None:
            self.counters.write_failures += 1
            logger.warning("a message of client %s was not written: %s", message.publisher, outcome.error)
            return Reason.UNSPECIFIED_ERROR
        assert outcome.source is not None
        if record.topic == RETAINED_TOPIC:
            self.retained.put(replace(message, source=outcome.source, offset=outcome.offset))
        else:
            self.counters.messages_written += 1
            known = self._acknowledged.get(outcome.source, 0)
            self._acknowledged[outcome.source] = max(known, outcome.offset + 1)
        return Reason.SUCCESS

    # From the log to clients

    def _route(self, batch: list[Any]) -> None:
        """Offer new records to the feeds that want them."""
        touched: dict[Feed, None] = {}
        for record in batch:
            if self.tree.size:
                message = message_in(record, self.settings.rules)
                if message is None:
                    self.counters.records_unmapped += 1
                else:
                    for feed, subscriptions in self.tree.matching(message.topic):
                        if feed.offer(message, subscriptions):
                            touched[feed] = None
            self.positions[Source(record.topic(), record.partition())] = record.offset() + 1
        for feed in touched:
            feed.wake()

    def since_now(self) -> Positions:
        """The first offsets that a new subscription gets: after all that clients know to be written."""
        return {
            source: max(offset, self._acknowledged.get(source, 0))
            for source, offset in self.positions.items()
        }

    def catch_up(self, feed: Feed) -> None:
        """Read a turn for a feed that is behind."""
        assert feed.behind is not None
        end = dict(self.positions)
        start = {source: feed.behind.get(source, offset) for source, offset in end.items()}
        if start == end or not feed.subscriptions:
            feed.add_turn(feed.begin_turn(), Turn([], end, is_complete=True))
            return
        self.spawn(self._catch_up(feed, feed.begin_turn(), start, end))

    async def _catch_up(self, feed: Feed, name: object, start: Positions, end: Positions) -> None:
        subscriptions = list(feed.subscriptions.values())
        rules, settings = self.settings.rules, self.settings
        try:
            turn = await self._readers.run(
                lambda records: read_turn(records, start, end, subscriptions, feed.client_id, rules, settings)
            )
            feed.add_turn(name, turn)
        except Exception as error:
            logger.warning("messages for %s could not be read, trying again: %s", feed.client_id, error)
            await asyncio.sleep(RETRY_SECONDS)
            feed.add_turn(name, None)
        feed.refill()

    async def restore(self, session: Session) -> None:
        """Read the messages again that were on their way when the client left."""
        wanted = {
            (entry.source, entry.offset): entry
            for entry in session.in_flight.values()
            if entry.source is not None and entry.delivery is None and not entry.is_released
        }
        start: Positions = {}
        end: Positions = {}
        for source, offset in wanted:
            start[source] = min(start.get(source, offset), offset)
            end[source] = max(end.get(source, 0), offset + 1)
        found: dict[tuple[Source, int], Message] = {}

        def read(records: Callable[[Positions, Positions], Any]) -> None:
            for record in records(start, end):
                at = (Source(record.topic(), record.partition()), record.offset())
                message = message_in(record, self.settings.rules) if at in wanted else None
                if message is not None:
                    found[at] = message

        if wanted:
            await self._readers.run(read)
        for at, entry in wanted.items():
            if at in found:
                entry.delivery = Delivery(found[at], entry.qos)
            elif session.in_flight.get(entry.packet_id) is entry:
                # Retention has removed it.
                del session.in_flight[entry.packet_id]

    def retained_message(self, topic: str) -> Message | None:
        message = self.retained.get(topic)
        if message is not None and message.is_expired(now_ms()):
            self.retained.put(Message(topic, b""))
            return None
        return message

    # The state of sessions

    def save(self, session: Session, then: Callable[[], None] | None = None) -> None:
        """Write the state of a session to the log, soon; `then` is called when the log has it."""
        if not self._saving:
            self._loop.call_soon(self._flush)
        session.is_recorded = True
        waiting = self._saving.setdefault(session, [])
        if then is not None:
            waiting.append(then)

    def forget(self, session: Session) -> None:
        """Do not write the state of a session that has ended."""
        self._saving.pop(session, None)

    async def saved(self, session: Session) -> None:
        """Write the state of a session to the log, and wait until the log has it. Raises TimeoutError."""
        done = asyncio.Event()
        self.save(session, done.set)
        async with asyncio.timeout(SAVE_SECONDS):
            await done.wait()

    def _flush(self) -> None:
        saving, self._saving = self._saving, {}
        for session, waiting in saving.items():
            session.is_dirty = False
            self._uplink.send(store.session_record(session), _after(session, waiting))

    def write(self, record: Record) -> None:
        """Write a record about a session, without waiting for it."""
        self._uplink.send(record)


def _after(session: Session, waiting: list[Callable[[], None]]) -> Callable[[Written], None]:
    def written(outcome: Written) -> None:
        if outcome.error is not None:
            session.is_dirty = True
            logger.warning("the session of %s could not be stored: %s", session.client_id, outcome.error)
            return
        for then in waiting:
            then()

    return written
