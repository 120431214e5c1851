"""The pace of answers, with clients that fetch ahead and stop for a second when they hold enough."""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from millrace.api.context import Context
from millrace.api.fetch_pace import FetchPace
from millrace.api.fetch_sessions import Key, Target
from millrace.deferred import Deferred
from millrace.testing import ManualClock
from millrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

from ..node import create_topic
from ..records import batch
from .conftest import Call

MB = 1e6
MAX_WAIT_SECONDS = 0.5
# As librdkafka comes: a megabyte of each partition, 100,000 records of 100 B, a pause of a second.
PARTITION_BYTES = 1_000_000
QUEUE_BYTES = 11 * MB
PAUSE_SECONDS = 1.0
DECODED_PER_SECOND = 350 * MB


@dataclass
class Read:
    size: int
    left: list[Key]
    seen: list[Key] = field(default_factory=list)


class Client:
    """Fetches ahead for an application that takes so many bytes a second, in a time of its own."""

    def __init__(self, pace: FetchPace, taken_per_second: float, partitions: int, seed: int = 1) -> None:
        self.now = 100.0
        self.pauses = 0
        self.waited = 0.0
        self._pace = pace
        self._taken_per_second = taken_per_second
        self._random = random.Random(seed)
        self._targets = [Target("t", bytes(16), FetchPartition(partition=n)) for n in range(partitions)]
        self._paused_until = dict.fromkeys(range(partitions), 0.0)
        self._queued = 0.0

    def received_in(self, seconds: float) -> float:
        """Bytes that the application gets."""
        end, received = self.now + seconds, 0.0
        while self.now < end:
            received += self._fetch()
        return received - self._queued

    def _fetch(self) -> int:
        asked = [target for target in self._targets if self._wants(target.partition.partition)]
        if not asked:
            self._pass(min(self._paused_until.values()) - self.now)
            return 0
        self._pace.asked(asked, self.now)
        size = min(len(asked) * PARTITION_BYTES, self._pace.max_bytes)
        read = Read(size, [target.key for target in asked])
        waited = self._pace.answer(read, self.now, MAX_WAIT_SECONDS)
        self.waited += waited
        self._pass(waited + size / DECODED_PER_SECOND)
        self._queued += size
        return size

    def _wants(self, partition: int) -> bool:
        if self._paused_until[partition] > self.now:
            return False
        # The application takes records while partitions are looked at one by one.
        if self._queued * self._random.uniform(0.97, 1.0) < QUEUE_BYTES:
            return True
        self._paused_until[partition] = self.now + PAUSE_SECONDS
        self.pauses += 1
        return False

    def _pass(self, seconds: float) -> None:
        self.now += seconds
        self._queued = max(self._queued - seconds * self._taken_per_second, 0.0)


class NoPace(FetchPace):
    """Answers at once."""

    def asked(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("partitions", [1, 6, 24])
@pytest.mark.parametrize("megabytes_per_second", [30, 60, 100, 200])
def test_an_application_is_hardly_kept_waiting(megabytes_per_second: int, partitions: int, seed: int) -> None:
    paced, unpaced = (
        Client(pace, megabytes_per_second * MB, partitions, seed) for pace in (FetchPace(), NoPace())
    )
    received, received_unpaced = paced.received_in(60), unpaced.received_in(60)
    assert received > 0.65 * 60 * megabytes_per_second * MB
    assert received > received_unpaced
    assert paced.pauses < 0.3 * unpaced.pauses


@pytest.mark.parametrize("partitions", [1, 6, 24])
def test_whoever_is_slower_than_its_pauses_gets_no_less_than_before(partitions: int) -> None:
    paced, unpaced = (Client(pace, 5 * MB, partitions) for pace in (FetchPace(), NoPace()))
    assert paced.received_in(60) > 0.98 * unpaced.received_in(60)


def test_whoever_never_stops_never_waits() -> None:
    client = Client(FetchPace(), 2 * DECODED_PER_SECOND, 6)
    client.received_in(60)
    assert client.pauses == 0
    assert client.waited == 0


def test_a_client_that_works_off_each_answer_before_it_asks_again_never_waits() -> None:
    pace, target, now = FetchPace(), Target("t", bytes(16), FetchPartition()), 100.0
    for _ in range(100):
        pace.asked([target], now)
        assert pace.answer(Read(PARTITION_BYTES, [target.key]), now, MAX_WAIT_SECONDS) == 0
        now += 0.8


def test_new_records_are_never_held_back() -> None:
    pace = FetchPace()
    client = Client(pace, 30 * MB, 1)
    client.received_in(5)
    assert client.pauses
    target = Target("t", bytes(16), FetchPartition())
    pace.asked([target], client.now)
    assert pace.answer(Read(PARTITION_BYTES, [], [target.key]), client.now, MAX_WAIT_SECONDS) == 0


def test_waiting_for_new_records_is_no_pause() -> None:
    pace, target = FetchPace(), Target("t", bytes(16), FetchPartition())
    pace.asked([target], 100.0)
    pace.answer(Read(PARTITION_BYTES, [target.key]), 100.0, MAX_WAIT_SECONDS)
    pace.asked([target], 100.01)
    pace.answer(Read(0, [], [target.key]), 100.01, MAX_WAIT_SECONDS)
    pace.asked([target], 110.0)
    assert pace.answer(Read(PARTITION_BYTES, [target.key]), 110.0, MAX_WAIT_SECONDS) == 0
    pace.asked([target], 110.001)
    assert pace.answer(Read(PARTITION_BYTES, [target.key]), 110.001, MAX_WAIT_SECONDS) == 0


def test_a_partition_that_is_asked_for_no_more_does_not_count() -> None:
    pace = FetchPace()
    client = Client(pace, 60 * MB, 6)
    client.received_in(10)
    assert client.pauses
    # Another member has taken five of them over; of the one that is left everything has been read.
    target, now = Target("t", bytes(16), FetchPartition(partition=0)), client.now
    for _ in range(1000):
        pace.asked([target], now)
        pace.answer(Read(0, [], [target.key]), now, MAX_WAIT_SECONDS)
        now += 10
    later = Client(pace, 60 * MB, 1)
    later.now = now
    assert later.received_in(60) > 0.65 * 60 * 60 * MB


class Reader:
    """Fetches one batch at a time of a topic that has many."""

    def __init__(self, ctx: Context, call: Call) -> None:
        self.clock = ctx.clock = ManualClock()
        self._call = call
        self._offset = 0
        create_topic(ctx, "orders", 1)
        for _ in range(20):
            ctx.partitions.leader("orders", 0).append(memoryview(batch(bytes(100_000))))

    def fetch(self, session_epoch: int = -1) -> FetchResponse | Deferred[FetchResponse]:
        asked = FetchPartition(partition=0, fetch_offset=self._offset, partition_max_bytes=1)
        topics = [FetchTopic(topic="orders", partitions=[asked])]
        request = FetchRequest(topics=topics, max_wait_ms=500, session_epoch=session_epoch)
        self._offset += 1
        answer: FetchResponse | Deferred[FetchResponse] = self._call(request, 12)
        return answer

    def stop_after(self, answers: int, session_epoch: int = -1) -> None:
        for _ in range(answers):
            assert isinstance(self.fetch(session_epoch), FetchResponse)
            self.clock.advance(10)
        self.clock.advance(1000)


@pytest.fixture
def reader(ctx: Context, call: Call) -> Iterator[Reader]:
    yield Reader(ctx, call)


def test_after_a_stop_answers_wait_for_their_time(ctx: Context, reader: Reader) -> None:
    reader.stop_after(5)
    assert isinstance(reader.fetch(), FetchResponse)
    waiting = reader.fetch()
    assert isinstance(waiting, Deferred)
    answered: list[FetchResponse] = []
    waiting.then(answered.append)
    assert not answered
    ctx.loop.run_until_complete(asyncio.sleep(MAX_WAIT_SECONDS + 0.1))
    (response,) = answered
    assert response.responses[0].partitions[0].records


def test_clients_with_sessions_are_not_held_back(reader: Reader) -> None:
    reader.stop_after(5, session_epoch=0)
    reader.fetch(session_epoch=0)
    assert isinstance(reader.fetch(session_epoch=0), FetchResponse)


@pytest.fixture
def unpaced(ctx: Context) -> None:
    ctx.config.millrace_fetch_pacing_enable = False


@pytest.mark.usefixtures("unpaced")
def test_pacing_can_be_turned_off(reader: Reader) -> None:
    reader.stop_after(5)
    reader.fetch()
    assert isinstance(reader.fetch(), FetchResponse)
