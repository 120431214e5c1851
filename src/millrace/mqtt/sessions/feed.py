"""A feed: the messages of the log that a session, or a group of sessions, is to get, in order.

A feed that keeps up is *live*: new messages arrive as the log grows, and wait in a short queue. A feed whose
queue is full, or whose client is away, is *behind*: it has no more than a position in the log, and goes on
from there in turns of bounded size when its client is ready. No message of QoS 1 or 2 is lost, and memory is
bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from millrace.mqtt.messages import Message, Positions, Source, message_of, topic_of
from millrace.mqtt.packets import topics
from millrace.mqtt.sessions.subscriptions import Subscription
from millrace.mqtt.settings import RETAINED_TOPIC

if TYPE_CHECKING:
    from millrace.mqtt.counters import Counters
    from millrace.mqtt.rules import Rules
    from millrace.mqtt.settings import Settings

TURN_RECORDS = 20_000
"""Records that one turn looks at: other clients are waiting for theirs."""


@dataclass(slots=True)
class Delivery:
    """A message on its way to one client."""

    message: Message
    qos: int
    retain: bool = False
    identifiers: tuple[int, ...] = ()


def delivery(message: Message, subscriptions: Iterable[Subscription], client_id: str) -> Delivery | None:
    """One delivery for all subscriptions that match a message; None if none of them wants it."""
    qos, retain = -1, False
    identifiers: tuple[int, ...] = ()
    for subscription in subscriptions:
        if subscription.wants(message, client_id):
            qos = max(qos, subscription.qos)
            retain = retain or (subscription.retain_as_published and message.retain)
            if subscription.identifier is not None:
                identifiers += (subscription.identifier,)
    return None if qos < 0 else Delivery(message, min(qos, message.qos), retain, identifiers)


class Log(Protocol):
    """The parts of the server that a feed needs."""

    settings: Settings
    counters: Counters
    positions: Positions
    """The next record of each partition that live feeds will get."""

    def catch_up(self, feed: Feed) -> None:
        """Read a turn for a feed that is behind."""


class Feed:
    """The queue of one reader. Owned by the event loop."""

    __slots__ = (
        "_log",
        "behind",
        "client_id",
        "is_active",
        "queue",
        "queued_bytes",
        "subscriptions",
        "tail",
        "turn",
        "wake",
    )

    def __init__(self, log: Log, client_id: str, wake: Callable[[], None]) -> None:
        self._log = log
        self.client_id = client_id
        self.wake = wake
        """Called when messages have arrived."""
        self.subscriptions: dict[str, Subscription] = {}
        self.queue: deque[Delivery] = deque()
        self.queued_bytes = 0
        self.is_active = True
        """Whether a client is there to get the messages."""
        self.behind: Positions | None = None
        """The next record to read from each partition, or None while the feed is live."""
        self.tail: list[Delivery] | None = None
        """New messages while a turn is read; they follow it if it ends where they begin."""

        self.turn: object = None
        """Names the turn that is being read, if there is one."""

    def offer(self, message: Message, subscriptions: list[Subscription]) -> bool:
        """Queue a new message of the log; True if it waits to be taken."""
        if not self.is_active or (self.behind is not None and self.tail is None):
            return False
        found = delivery(message, subscriptions, self.client_id)
        if found is None:
            return False
        if self.tail is not None:
            if found.qos:
                self.tail.append(found)
                if len(self.tail) > self._log.settings.queued_messages:
                    self.tail = None
            else:
                self._log.counters.messages_dropped += 1
            return False
        if self._is_full():
            self.wake()
        if self._is_full():
            if found.qos == 0:
                self._log.counters.messages_dropped += 1
            else:
                self._fall_behind(message)
            return False
        self._append(found)
        return True

    def _is_full(self) -> bool:
        settings = self._log.settings
        return len(self.queue) >= settings.queued_messages or self.queued_bytes >= settings.queued_bytes

    def _append(self, found: Delivery) -> None:
        self.queue.append(found)
        self.queued_bytes += found.message.size

    def _fall_behind(self, message: Message) -> None:
        """Go on from the log, starting with this message."""
        self._log.counters.feeds_behind += 1
        self.behind = dict(self._log.positions)
        assert message.source is not None
        self.behind[message.source] = message.offset

    def take(self) -> Delivery:
        """The first message of the queue."""
        found = self.queue.popleft()
        self.queued_bytes -= found.message.size
        return found

    def put_back(self, deliveries: Iterable[Delivery]) -> None:
        """Queue messages again that were taken first and never arrived."""
        for found in deliveries:
            self.queue.appendleft(found)
            self.queued_bytes += found.message.size

    def refill(self) -> None:
        """Ask for more messages from the log if the queue is empty and the feed is behind."""
        if self.behind is not None and not self.queue and self.is_active and self.turn is None:
            self._log.catch_up(self)

    @property
    def position(self) -> Positions:
        """The first message of each partition that has not been taken."""
        positions = dict(self._log.positions if self.behind is None else self.behind)
        for waiting in reversed(self.queue):
            if waiting.qos and waiting.message.source in positions:
                positions[waiting.message.source] = waiting.message.offset
        return positions

    def pause(self) -> None:
        """Forget the queue, and keep the position: the client is away."""
        self.behind = self.position
        self.is_active = False
        self.tail = self.turn = None
        self.queue.clear()
        self.queued_bytes = 0

    def resume(self) -> None:
        self.is_active = True
        self.refill()

    def begin_turn(self) -> object:
        """Keep new messages from now on; they follow the turn that is read."""
        self.tail = []
        self.turn = object()
        return self.turn

    def add_turn(self, name: object, turn: Turn | None) -> None:
        """Queue the messages of a turn, if it has not been cancelled; None stands for one that failed.

        The feed is live again if the turn reached the newest message.
        """
        if self.turn is not name:
            return
        tail, self.tail, self.turn = self.tail, None, None
        if turn is None:
            return
        for found in turn.deliveries:
            self._append(found)
        self.behind = turn.position
        if turn.is_complete and tail is not None:
            self.behind = None
            for found in tail:
                self._append(found)
        self.wake()


@dataclass(slots=True)
class Turn:
    """A part of the log as one feed sees it."""

    deliveries: list[Delivery]
    position: Positions
    is_complete: bool


def read_turn(
    records: Callable[[Positions, Positions], Iterator[Any]],
    start: Positions,
    end: Positions,
    subscriptions: list[Subscription],
    client_id: str,
    rules: Rules,
    settings: Settings,
) -> Turn:
    """Read the messages of QoS 1 and 2 from one position to another, up to the size of a queue."""
    turn = Turn([], dict(start), is_complete=False)
    size = 0
    for number, record in enumerate(records(start, end), 1):
        if number > TURN_RECORDS:
            return turn
        message = message_in(record, rules)
        assert message is None or message.source is not None
        turn.position[Source(record.topic(), record.partition())] = record.offset() + 1
        if message is None:
            continue
        matching = [one for one in subscriptions if topics.matches(one.filter, message.topic)]
        found = delivery(message, matching, client_id)
        if found is None or found.qos == 0:
            continue
        turn.deliveries.append(found)
        size += message.size
        if len(turn.deliveries) >= settings.queued_messages // 2 or size >= settings.queued_bytes // 2:
            return turn
    turn.position.update(end)
    turn.is_complete = True
    return turn


def message_in(record: Any, rules: Rules) -> Message | None:
    """The message that a record of the log keeps, or None if it has no MQTT topic."""
    headers = record.headers() or ()
    if record.topic() == RETAINED_TOPIC:
        topic: str | None = record.key().decode()
    else:
        topic = topic_of(rules, record.topic(), record.key(), headers)
    if topic is None:
        return None
    message = message_of(topic, record.value(), headers, record.timestamp()[1])
    message.source = Source(record.topic(), record.partition())
    message.offset = record.offset()
    return message
