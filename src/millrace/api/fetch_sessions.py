"""Incremental fetch (KIP-227): a client names its partitions once, then only what changes.

A session remembers what each partition was asked for and what was last told about it, so that both
requests and responses carry differences. Owned by the broker loop; not thread-safe.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterable

from millrace.clock import Clock
from millrace.errors import Error, KafkaError
from millrace.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    ForgottenTopic,
    PartitionData,
)

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = 2**31 - 1

Key = tuple[str, bytes, int]


class Target:
    """One partition a fetch asks for, with what a session last told the client about it."""

    __slots__ = ("key", "partition", "told_high_watermark", "told_log_start_offset", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: bytes, partition: FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.key: Key = (topic, topic_id, partition.partition)
        self.told_high_watermark = -1
        self.told_log_start_offset = -1

    def is_news(self, data: PartitionData) -> bool:
        """Whether the client must hear of `data`; what it hears is remembered."""
        news = bool(
            data.error_code
            or data.records
            or data.high_watermark != self.told_high_watermark
            or data.log_start_offset != self.told_log_start_offset
            or data.diverging_epoch is not None
        )
        # After an error everything is told again, so that the client starts from known values.
        self.told_high_watermark = -1 if data.error_code else data.high_watermark
        self.told_log_start_offset = -1 if data.error_code else data.log_start_offset
        return news


class Fetch:
    """What one request asks for; without a session, everything in it is answered."""

    def __init__(self, targets: Iterable[Target]) -> None:
        self.targets: list[Target] = list(targets)

    def response(self, results: list[tuple[Target, PartitionData]]) -> FetchResponse:
        return FetchResponse(session_id=NO_SESSION, responses=_by_topic(results))


class SessionFetch(Fetch):
    """A fetch within a session."""

    def __init__(self, session: Session, *, everything: bool) -> None:
        super().__init__(session.targets.values())
        self._session = session
        self._everything = everything

    def response(self, results: list[tuple[Target, PartitionData]]) -> FetchResponse:
        session = self._session
        news = [(target, data) for target, data in results if target.is_news(data) or self._everything]
        for target, data in news:
            # What had data goes to the end, so that every partition gets its turn within max.bytes.
            if data.records and target.key in session.targets:
                session.targets.move_to_end(target.key)
        return FetchResponse(session_id=session.session_id, responses=_by_topic(news))


class Session:
    __slots__ = ("epoch", "last_used_ms", "session_id", "targets", "uses_topic_ids")

    def __init__(self, session_id: int, targets: Iterable[Target], uses_topic_ids: bool) -> None:
        self.session_id = session_id
        self.epoch = 1
        self.last_used_ms = 0
        self.uses_topic_ids = uses_topic_ids
        self.targets: OrderedDict[Key, Target] = OrderedDict((target.key, target) for target in targets)

    def update(self, request: FetchRequest) -> None:
        for key, target in _targets(request).items():
            known = self.targets.get(key)
            if known is None:
                self.targets[key] = target
            else:
                known.partition = target.partition
        for key in _forgotten(request.forgotten_topics_data):
            self.targets.pop(key, None)


class FetchSessions:
    """The sessions of all clients, at most `slots` of them."""

    def __init__(self, slots: int, eviction_ms: int, clock: Clock) -> None:
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._clock = clock
        self._sessions: OrderedDict[int, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, *, uses_topic_ids: bool) -> Fetch:
        """What `request` asks for, by itself or within its session."""
        epoch = request.session_epoch
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id != NO_SESSION:
                self._sessions.pop(request.session_id, None)
            targets = list(_targets(request).values())
            session = self._create(targets, uses_topic_ids) if epoch == INITIAL_EPOCH else None
            return SessionFetch(session, everything=True) if session else Fetch(targets)
        session = self._continue(request, uses_topic_ids)
        session.update(request)
        if not session.targets:
            # Nothing is left to tell of: it would only take a slot.
            del self._sessions[session.session_id]
            return Fetch(())
        return SessionFetch(session, everything=False)

    def _continue(self, request: FetchRequest, uses_topic_ids: bool) -> Session:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(Error.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(Error.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(Error.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        self._use(session)
        return session

    def _create(self, targets: list[Target], uses_topic_ids: bool) -> Session | None:
        """A new session, unless all slots are taken by sessions that deserve them more."""
        if not targets or not self._make_room(len(targets)):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = random.randint(1, MAX_EPOCH)
        session = Session(session_id, targets, uses_topic_ids)
        self._sessions[session_id] = session
        self._use(session)
        return session

    def _make_room(self, size: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        smallest = min(self._sessions.values(), key=lambda session: len(session.targets))
        if self._clock.now_ms() - oldest.last_used_ms > self._eviction_ms:
            del self._sessions[oldest.session_id]
            return True
        if len(smallest.targets) < size:
            del self._sessions[smallest.session_id]
            return True
        return False

    def _use(self, session: Session) -> None:
        session.last_used_ms = self._clock.now_ms()
        self._sessions.move_to_end(session.session_id)


def _targets(request: FetchRequest) -> dict[Key, Target]:
    """What a request names; of a partition that is named twice, the last counts, as in Kafka."""
    targets: dict[Key, Target] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            target = Target(topic.topic, topic.topic_id, partition)
            targets[target.key] = target
    return targets


def _forgotten(topics: list[ForgottenTopic]) -> Iterable[Key]:
    for topic in topics:
        for index in topic.partitions:
            yield topic.topic, topic.topic_id, index


def _by_topic(results: list[tuple[Target, PartitionData]]) -> list[FetchableTopicResponse]:
    topics: list[FetchableTopicResponse] = []
    for target, data in results:
        last = topics[-1] if topics else None
        if last is None or last.topic != target.topic or last.topic_id != target.topic_id:
            last = FetchableTopicResponse(topic=target.topic, topic_id=target.topic_id, partitions=[])
            topics.append(last)
        last.partitions.append(data)
    return topics
