"""Incremental fetch sessions (KIP-227): a client names its partitions once, then only changes.

A session remembers the last request for each partition and the last state that was sent of it, so that both
requests and responses carry differences. Owned by the broker loop; not thread-safe.
"""

from __future__ import annotations

import random
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator

from millrace.clock import Clock
from millrace.errors import Error, KafkaError
from millrace.steps import Steps, slices
from millrace.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = 2**31 - 1
# Sessions have at most this many partitions on average. A partition takes about 420 bytes.
PARTITIONS_PER_SLOT = 200

Key = tuple[str, bytes, int]


class Target:
    """One partition of a fetch, with the state that the session last sent of it."""

    __slots__ = ("key", "partition", "sent_high_watermark", "sent_log_start_offset", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: bytes, partition: FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.key: Key = (topic, topic_id, partition.partition)
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1

    def is_news(self, data: PartitionData) -> bool:
        """Whether the client does not know `data` yet. Remembers it as sent."""
        news = bool(
            data.error_code
            or data.records
            or data.high_watermark != self.sent_high_watermark
            or data.log_start_offset != self.sent_log_start_offset
            or data.diverging_epoch is not None
        )
        # After an error everything is sent again, so that the client starts from known values.
        self.sent_high_watermark = -1 if data.error_code else data.high_watermark
        self.sent_log_start_offset = -1 if data.error_code else data.log_start_offset
        return news


Targets = dict[Key, Target]
Result = tuple[Target, PartitionData]


def targets_of(request: FetchRequest) -> Targets:
    """The partitions that a request names. The last mention of a partition counts, as in Kafka."""
    targets: Targets = {}
    for topic in request.topics:
        _add_targets(targets, topic, topic.partitions)
    return targets


def targets_in_steps(request: FetchRequest) -> Steps[Targets]:
    """The same for long requests."""
    targets: Targets = {}
    for topic in request.topics:
        for partitions in slices(topic.partitions):
            _add_targets(targets, topic, partitions)
            yield
    return targets


def _add_targets(targets: Targets, topic: FetchTopic, partitions: list[FetchPartition]) -> None:
    for partition in partitions:
        target = Target(topic.topic, topic.topic_id, partition)
        targets[target.key] = target


class Fetch:
    """The partitions of one request. Without a session, the response has all of them."""

    def __init__(self, targets: Iterable[Target]) -> None:
        self.targets: list[Target] = list(targets)

    def response(self) -> FetchResponse:
        """An empty response."""
        return FetchResponse(session_id=NO_SESSION, responses=[])

    def add(self, response: FetchResponse, results: list[Result]) -> None:
        """Add partitions that were read, in the order of `targets`."""
        _add(response.responses, results)


class SessionFetch(Fetch):
    """A fetch within a session."""

    def __init__(self, session: Session, *, everything: bool) -> None:
        super().__init__(session.targets.values())
        self._session = session
        self._everything = everything

    def response(self) -> FetchResponse:
        return FetchResponse(session_id=self._session.session_id, responses=[])

    def add(self, response: FetchResponse, results: list[Result]) -> None:
        session = self._session
        news = [(target, data) for target, data in results if target.is_news(data) or self._everything]
        for target, data in news:
            # Partitions that had data move to the end: each gets its turn within max.bytes.
            if data.records and target.key in session.targets:
                session.targets.move_to_end(target.key)
        _add(response.responses, news)


class Session:
    """The partitions of one client's fetches."""

    __slots__ = ("_client", "epoch", "last_used_ms", "session_id", "targets", "uses_topic_ids")

    def __init__(self, session_id: int, targets: Targets, uses_topic_ids: bool) -> None:
        self.session_id = session_id
        self.epoch = 1
        self.last_used_ms = 0
        self.uses_topic_ids = uses_topic_ids
        self.targets: OrderedDict[Key, Target] = OrderedDict(targets)
        self._client: weakref.ref[object] | None = None

    @property
    def is_abandoned(self) -> bool:
        """Whether the connection that used it last is closed. Clients begin a new session after that."""
        return self._client is not None and self._client() is None

    def use(self, client: object, now_ms: int) -> None:
        self._client = weakref.ref(client)
        self.last_used_ms = now_ms

    def update(self, targets: Targets, forgotten: list[ForgottenTopic]) -> None:
        for key, target in targets.items():
            known = self.targets.get(key)
            if known is None:
                self.targets[key] = target
            else:
                known.partition = target.partition
        for key in _forgotten(forgotten):
            self.targets.pop(key, None)


class FetchSessions:
    """The sessions of all clients: at most `slots`, with `PARTITIONS_PER_SLOT` partitions each on average."""

    def __init__(self, slots: int, eviction_ms: int, clock: Clock) -> None:
        self._slots = slots
        self._max_partitions = slots * PARTITIONS_PER_SLOT
        self._eviction_ms = eviction_ms
        self._clock = clock
        # The least recently used session is the first.
        self._sessions: OrderedDict[int, Session] = OrderedDict()
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """Partitions of all sessions."""
        return self._partitions

    def size_of(self, request: FetchRequest) -> int:
        """The number of partitions in the request and in its session."""
        size = sum(len(topic.partitions) for topic in request.topics)
        session = self._sessions.get(request.session_id)
        return size if session is None else size + len(session.targets)

    def begin(
        self, request: FetchRequest, targets: Targets, client: object, *, uses_topic_ids: bool
    ) -> Fetch:
        """A request for `targets`, by itself or within its session. `client` lives as its connection."""
        epoch = request.session_epoch
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if ended := self._sessions.get(request.session_id):
                self._remove(ended)
            session = self._create(targets, client, uses_topic_ids) if epoch == INITIAL_EPOCH else None
            return SessionFetch(session, everything=True) if session else Fetch(targets.values())
        session = self._continue(request, targets, client, uses_topic_ids)
        if not session.targets:
            # An empty session would only take a slot.
            self._remove(session)
            return Fetch(())
        return SessionFetch(session, everything=False)

    def _continue(
        self, request: FetchRequest, targets: Targets, client: object, uses_topic_ids: bool
    ) -> Session:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(Error.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(Error.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(Error.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        if targets or request.forgotten_topics_data:
            self._update(session, targets, request.forgotten_topics_data)
        self._use(session, client)
        return session

    def _update(self, session: Session, targets: Targets, forgotten: list[ForgottenTopic]) -> None:
        """Change the partitions of a session. If it grows too large, it ends and its client begins again."""
        self._remove(session)
        session.update(targets, forgotten)
        if not self._make_room(len(session.targets)):
            raise KafkaError(Error.FETCH_SESSION_ID_NOT_FOUND)
        self._add(session)

    def _create(self, targets: Targets, client: object, uses_topic_ids: bool) -> Session | None:
        """A new session, unless the sessions that exist are worth more."""
        if not targets or not self._make_room(len(targets)):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = random.randint(1, MAX_EPOCH)
        session = Session(session_id, targets, uses_topic_ids)
        self._add(session)
        self._use(session, client)
        return session

    def _make_room(self, partitions: int) -> bool:
        """Evict sessions until one of so many partitions fits; returns whether it does."""
        if partitions > self._max_partitions or not self._slots:
            return False
        for session in self._evictable(partitions):
            if self._fits(partitions):
                break
            self._remove(session)
        return self._fits(partitions)

    def _fits(self, partitions: int) -> bool:
        return len(self._sessions) < self._slots and self._partitions + partitions <= self._max_partitions

    def _evictable(self, partitions: int) -> Iterator[Session]:
        """Sessions that one of so many partitions may replace, those worth least first."""
        if self._fits(partitions):
            return
        sessions = list(self._sessions.values())
        yield from (session for session in sessions if session.is_abandoned)
        unused_since_ms = self._clock.now_ms() - self._eviction_ms
        sessions = [session for session in sessions if not session.is_abandoned]
        yield from (session for session in sessions if session.last_used_ms < unused_since_ms)
        sessions = [session for session in sessions if session.last_used_ms >= unused_since_ms]
        sessions.sort(key=lambda session: len(session.targets))
        if len(self._sessions) >= self._slots:
            # A slot is worth most to a large session, as in Kafka.
            yield from (session for session in sessions[:1] if len(session.targets) < partitions)
        if self._partitions + partitions > self._max_partitions:
            # Memory is worth most to many small sessions.
            yield from (session for session in reversed(sessions) if len(session.targets) > partitions)

    def _add(self, session: Session) -> None:
        self._sessions[session.session_id] = session
        self._partitions += len(session.targets)

    def _remove(self, session: Session) -> None:
        del self._sessions[session.session_id]
        self._partitions -= len(session.targets)

    def _use(self, session: Session, client: object) -> None:
        session.use(client, self._clock.now_ms())
        self._sessions.move_to_end(session.session_id)


def _forgotten(topics: list[ForgottenTopic]) -> Iterable[Key]:
    for topic in topics:
        for index in topic.partitions:
            yield topic.topic, topic.topic_id, index


def _add(topics: list[FetchableTopicResponse], results: list[Result]) -> None:
    """Add partitions to the last topic, or to new ones."""
    last = topics[-1] if topics else None
    for target, data in results:
        if last is None or last.topic != target.topic or last.topic_id != target.topic_id:
            last = FetchableTopicResponse(topic=target.topic, topic_id=target.topic_id, partitions=[])
            topics.append(last)
        last.partitions.append(data)
