"""Pacing of Fetch responses, with clients that stop fetching for a second when their queue is full."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millrace.api.fetch_pace import PYTHON_RECORDS_PER_SECOND, PYTHON_REST, Pacer, pacer_for
from millrace.api.fetch_sessions import Target
from millrace.clock import Clock
from millrace.deferred import Deferred
from millrace.storage.file_slice import FileSlice
from millrace.testing import ManualClock
from millrace.testing.timers import ManualTimers
from millrace.wire.messages.api_versions import ApiVersionsRequest
from millrace.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from millrace.wire.records import Record, build_batch

from ..node import create_topic
from ..records import batch
from .api import Api
from .conftest import Call

VERSION = 12
MAX_WAIT_SECONDS = 0.5
# librdkafka's defaults.
PARTITION_BYTES = 1_000_000
QUEUE_RECORDS = 100_000
QUEUE_BYTES = 64 << 20
BACKOFF_SECONDS = 1.0
# Measured with librdkafka 2.16. Decoding is slower while the application takes records from the queue.
DECODE_SECONDS_PER_RECORD = 0.17e-6
DECODE_SECONDS_PER_BYTE = 0.25e-9
CONTENTION = 1.6

MILLION = 1_000_000
Results = list[tuple[Target, PartitionData]]


class Records:
    """A file with a batch of equal records, of which pieces of any length are taken."""

    def __init__(self, path: Path, record_bytes: int) -> None:
        content = build_batch(Record(offset, 0, None, bytes(record_bytes)) for offset in range(100))
        path.write_bytes(content)
        self._file = path.open("rb")
        self.bytes_each = len(content) / 100

    def results(self, size: int, *, more: bool = True) -> Results:
        """A response with one piece, of a partition that has more records or none."""
        data = PartitionData(high_watermark=200 if more else 100)
        data.records = FileSlice(self._file, 0, size, next_offset=100)
        return [(Target("t", bytes(16), FetchPartition()), data)]

    def close(self) -> None:
        self._file.close()


MakeRecords = Callable[[int], Records]


@pytest.fixture
def records_of(tmp_path: Path) -> Iterator[MakeRecords]:
    made: list[Records] = []

    def make(record_bytes: int) -> Records:
        made.append(Records(tmp_path / f"{len(made)}.log", record_bytes))
        return made[-1]

    yield make
    for records in made:
        records.close()


class Client:
    """librdkafka, for an application that takes so many records a second, in simulated time."""

    def __init__(
        self,
        pacer: Pacer,
        records: Records,
        records_per_second: float,
        *,
        partitions: int = 6,
        queue_records: int = QUEUE_RECORDS,
        seed: int = 1,
    ) -> None:
        self.now = 100.0
        self.stops = 0
        self.waited = 0.0
        self.taken = 0.0
        self._pacer = pacer
        self._records = records
        self._records_per_second = records_per_second
        self._queue_records = min(queue_records, QUEUE_BYTES / records.bytes_each)
        self._random = random.Random(seed)
        self._backed_off_until = [0.0] * partitions
        self._queued = 0.0

    def run(self, *, seconds: float) -> float:
        """The records that the application takes per second."""
        began, taken = self.now, self.taken
        while self.now < began + seconds:
            self._fetch()
        return (self.taken - taken) / (self.now - began)

    def run_through(self, count: float) -> float:
        """The records per second while the application takes so many records."""
        began = self.now
        while self.taken + self._queued < count:
            self._fetch()
        self._pass(self._queued / self._records_per_second)
        return self.taken / (self.now - began)

    def _fetch(self) -> None:
        partitions = sum(self._is_fetched(number) for number in range(len(self._backed_off_until)))
        if not partitions:
            self._pass(min(self._backed_off_until) - self.now)
            return
        size = min(partitions * PARTITION_BYTES, self._pacer.on_request(partitions, self.now))
        waited = self._pacer.on_response(self._records.results(size), size, self.now, MAX_WAIT_SECONDS)
        self.waited += waited
        self._pass(waited)
        count = size / self._records.bytes_each
        seconds = count * DECODE_SECONDS_PER_RECORD + size * DECODE_SECONDS_PER_BYTE
        self._pass(seconds * CONTENTION if self._queued else seconds)
        self._queued += count

    def _is_fetched(self, partition: int) -> bool:
        if self._backed_off_until[partition] > self.now:
            return False
        # The application takes records while partitions are looked at one by one.
        if self._queued * self._random.uniform(0.9995, 1.0) < self._queue_records:
            return True
        self._backed_off_until[partition] = self.now + BACKOFF_SECONDS
        self.stops += 1
        return False

    def _pass(self, seconds: float) -> None:
        self.now += seconds
        taken = min(self._queued, seconds * self._records_per_second)
        self._queued -= taken
        self.taken += taken


class NoPace(Pacer):
    """Responds at once, with everything."""

    def on_request(self, partitions: int, now: float) -> int:
        return 2**31 - 1

    def on_response(self, results: object, size: int, now: float, max_wait_seconds: float) -> float:
        return 0.0


def python_pacer() -> Pacer:
    return Pacer(PYTHON_RECORDS_PER_SECOND, rest=PYTHON_REST)


@pytest.mark.parametrize("queue_records", [QUEUE_RECORDS, MILLION])
@pytest.mark.parametrize("record_bytes", [100, 1000])
def test_a_fast_python_application_catches_up_without_a_stop(
    records_of: MakeRecords, record_bytes: int, queue_records: int
) -> None:
    speed = 1.25 * MILLION
    client = Client(python_pacer(), records_of(record_bytes), speed, queue_records=queue_records)
    assert client.run_through(2 * MILLION) > 0.85 * speed
    assert client.stops == 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("partitions", [1, 6, 24])
@pytest.mark.parametrize("record_bytes", [100, 1000])
@pytest.mark.parametrize("records_per_second", [100_000, 300_000, 600_000, MILLION])
@pytest.mark.parametrize("new_pacer", [Pacer, python_pacer])
def test_an_application_rarely_waits_for_records(
    records_of: MakeRecords,
    new_pacer: Callable[[], Pacer],
    records_per_second: int,
    record_bytes: int,
    partitions: int,
    seed: int,
) -> None:
    records = records_of(record_bytes)
    paced, unpaced = (
        Client(pacer, records, records_per_second, partitions=partitions, seed=seed)
        for pacer in (new_pacer(), NoPace())
    )
    speed, unpaced_speed = paced.run(seconds=60), unpaced.run(seconds=60)
    assert speed > 0.75 * records_per_second
    assert speed > 0.95 * unpaced_speed
    assert paced.stops < 0.25 * unpaced.stops


@pytest.mark.parametrize("partitions", [1, 6, 24])
def test_an_application_slower_than_its_stops_gets_as_much_as_before(
    records_of: MakeRecords, partitions: int
) -> None:
    records = records_of(100)
    paced, unpaced = (Client(pacer, records, 30_000, partitions=partitions) for pacer in (Pacer(), NoPace()))
    assert paced.run(seconds=60) > 0.95 * unpaced.run(seconds=60)


def test_a_client_that_never_stops_never_waits(records_of: MakeRecords) -> None:
    client = Client(Pacer(), records_of(100), 20 * MILLION)
    client.run(seconds=60)
    assert (client.stops, client.waited) == (0, 0)


def test_the_pace_of_python_ends_for_a_client_that_never_stops(records_of: MakeRecords) -> None:
    client = Client(python_pacer(), records_of(100), 20 * MILLION)
    client.run(seconds=30)
    waited = client.waited
    client.run(seconds=30)
    assert waited > 0
    assert client.waited == waited


def test_a_client_that_handles_each_response_before_it_asks_again_never_waits(
    records_of: MakeRecords,
) -> None:
    pacer, records, now = Pacer(), records_of(100), 100.0
    for _ in range(100):
        pacer.on_request(1, now)
        results = records.results(PARTITION_BYTES)
        assert pacer.on_response(results, PARTITION_BYTES, now, MAX_WAIT_SECONDS) == 0
        now += 0.8


def test_new_records_are_never_held_back(records_of: MakeRecords) -> None:
    pacer, records = python_pacer(), records_of(100)
    client = Client(pacer, records, 300_000, partitions=1)
    client.run(seconds=5)
    pacer.on_request(1, client.now)
    results = records.results(PARTITION_BYTES, more=False)
    assert pacer.on_response(results, PARTITION_BYTES, client.now, MAX_WAIT_SECONDS) == 0


def test_waiting_for_new_records_is_no_stop(records_of: MakeRecords) -> None:
    pacer, records, now = Pacer(), records_of(100), 100.0
    for _ in range(20):
        pacer.on_request(1, now)
        pacer.on_response(records.results(PARTITION_BYTES), PARTITION_BYTES, now, MAX_WAIT_SECONDS)
        now += 0.003
    pacer.on_request(1, now)
    pacer.on_parked()
    for _ in range(2):
        now += 10
        pacer.on_request(1, now)
        results = records.results(PARTITION_BYTES, more=False)
        assert pacer.on_response(results, PARTITION_BYTES, now, MAX_WAIT_SECONDS) == 0


def test_a_batch_with_a_false_count_delays_no_longer_than_a_full_queue(tmp_path: Path) -> None:
    records = Records(tmp_path / "false.log", 100)
    with (tmp_path / "false.log").open("r+b") as file:
        file.seek(57)
        file.write((2**31 - 1).to_bytes(4, "big"))
    pacer, now = python_pacer(), 100.0
    for _ in range(2):
        pacer.on_request(1, now)
        waited = pacer.on_response(records.results(PARTITION_BYTES), PARTITION_BYTES, now, MAX_WAIT_SECONDS)
        now += waited
    records.close()
    assert waited <= QUEUE_RECORDS / PYTHON_RECORDS_PER_SECOND


def test_a_segment_that_has_become_shorter_does_not_fail_the_response(tmp_path: Path) -> None:
    records = Records(tmp_path / "short.log", 100)
    (tmp_path / "short.log").write_bytes(b"")
    pacer = python_pacer()
    pacer.on_request(1, 100.0)
    assert pacer.on_response(records.results(PARTITION_BYTES), PARTITION_BYTES, 100.0, 0.5) == 0
    records.close()


@pytest.mark.parametrize(
    ("software", "is_paced"),
    [
        ("librdkafka", True),
        ("confluent-kafka-python", True),
        ("confluent-kafka-go", True),
        ("apache-kafka-java", False),
        ("kgo", False),
        ("kafka-python", False),
        ("", False),
    ],
)
def test_only_clients_based_on_librdkafka_are_paced(software: str, is_paced: bool) -> None:
    assert (pacer_for(software) is not None) == is_paced


# The handler


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(Clock().now_ms())


@pytest.fixture
def timers(clock: ManualClock) -> ManualTimers:
    return ManualTimers(clock)


class Reader:
    """Fetches one batch at a time from a topic that has many."""

    def __init__(self, api: Api, call: Call) -> None:
        self._call = call
        self._offset = 0
        call(
            ApiVersionsRequest(client_software_name="confluent-kafka-python", client_software_version="1"), 3
        )
        create_topic(api, "orders", 1)
        for _ in range(40):
            api.partitions.leader("orders", 0).append_as_leader(memoryview(batch(*[bytes(1)] * 10_000)))

    def fetch(
        self, *, session_epoch: int = -1, replica_id: int = -1
    ) -> FetchResponse | Deferred[FetchResponse]:
        asked = FetchPartition(partition=0, fetch_offset=self._offset, partition_max_bytes=1)
        request = FetchRequest(
            topics=[FetchTopic(topic="orders", partitions=[asked])],
            max_wait_ms=500,
            session_epoch=session_epoch,
            replica_id=replica_id,
        )
        self._offset += 10_000
        response: FetchResponse | Deferred[FetchResponse] = self._call(request, VERSION)
        return response

    def fetch_until_it_waits(self, **request: int) -> Deferred[FetchResponse] | None:
        """The first response that is held back."""
        for _ in range(20):
            response = self.fetch(**request)
            if isinstance(response, Deferred):
                return response
        return None


@pytest.fixture
def reader(api: Api, call: Call) -> Reader:
    return Reader(api, call)


def test_responses_wait_until_they_are_due(reader: Reader, timers: ManualTimers) -> None:
    waiting = reader.fetch_until_it_waits()
    assert waiting is not None
    received: list[FetchResponse] = []
    waiting.then(received.append)
    assert not received
    timers.advance(500)
    (response,) = received
    assert response.responses[0].partitions[0].records


def test_a_client_that_disconnects_leaves_no_timer(reader: Reader, timers: ManualTimers) -> None:
    waiting = reader.fetch_until_it_waits()
    assert waiting is not None
    assert waiting in timers
    waiting.cancel()
    assert waiting not in timers


def test_clients_with_sessions_are_not_paced(reader: Reader) -> None:
    assert reader.fetch_until_it_waits(session_epoch=0) is None


def test_replicas_are_not_paced(reader: Reader) -> None:
    assert reader.fetch_until_it_waits(replica_id=1) is None


def test_replicas_of_later_versions_are_not_paced(api: Api, reader: Reader, call: Call) -> None:
    topic_id = api.image.topics["orders"].topic_id
    for offset in range(0, 200_000, 10_000):
        asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
        topics = [FetchTopic(topic_id=topic_id, partitions=[asked])]
        request = FetchRequest(topics=topics, max_wait_ms=500, replica_state=ReplicaState(replica_id=1))
        assert isinstance(call(request, 17), FetchResponse)


class TestWithoutPacing:
    @pytest.fixture(autouse=True)
    def unpaced(self, api: Api) -> None:
        api.config.millrace_fetch_pacing_enable = False

    def test_pacing_can_be_disabled(self, reader: Reader) -> None:
        assert reader.fetch_until_it_waits() is None
