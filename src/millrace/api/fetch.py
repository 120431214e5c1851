"""Fetch v4-18. v7: sessions. v9: leader epochs. v10: zstd. v12: flexible, diverging epochs. v13: topic ids.

From v16 on, a broker that does not lead names the leader (KIP-951).

Records are sent as file slices, from the page cache, unless they are few. A fetch that finds less than
`min_bytes` is parked without a coroutine: see replication/waiting.py. Responses to librdkafka are paced: see
fetch_pace.py.
"""

from __future__ import annotations

import time

from millrace.api.context import Context
from millrace.api.current_leaders import CurrentLeaders
from millrace.api.fetch_pace import MAX_BYTES, Pacer
from millrace.api.fetch_sessions import (
    FINAL_EPOCH,
    Fetch,
    Target,
    Targets,
    targets_in_steps,
    targets_of,
)
from millrace.deferred import Deferred
from millrace.errors import Error, KafkaError
from millrace.replication.partition import Partition
from millrace.replication.waiting import ParkedFetch
from millrace.steps import Steps, finish, slices
from millrace.storage.log import Log
from millrace.timers import Timers
from millrace.wire.messages.current_leader import LeaderIdAndEpoch
from millrace.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

ZSTD_FROM = 10
TOPIC_IDS_FROM = 13
CURRENT_LEADERS_FROM = 16
NAMES_LEADER = (Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH)
READ_COMMITTED = 1
NO_EPOCH = -1
CONSUMER = -1
# Few records are copied, so that the whole response leaves in one packet and wakes its reader once.
COPIED_BYTES = 16 * 1024
# A fetch of more partitions, its session's included, takes turns with other requests.
LONG_FETCH_PARTITIONS = 1000
PARTITIONS_PER_STEP = 50


Response = FetchResponse | Deferred[FetchResponse]


def handle(ctx: Context, request: FetchRequest) -> Response | Steps[Response]:
    if ctx.services.fetch_sessions.size_of(request) > LONG_FETCH_PARTITIONS:
        return _respond_in_steps(ctx, request)
    fetch = _begin(ctx, request, targets_of(request))
    pacer = ctx.session.pacer
    if pacer is not None and request.session_epoch == FINAL_EPOCH and _follower(request) == CONSUMER:
        return _respond_in_pace(ctx, request, fetch, pacer)
    return _respond(ctx, request, fetch, _Reading(ctx, request))


def _begin(ctx: Context, request: FetchRequest, targets: Targets) -> Fetch:
    uses_topic_ids = ctx.api_version >= TOPIC_IDS_FROM
    return ctx.services.fetch_sessions.begin(request, targets, ctx.session, uses_topic_ids=uses_topic_ids)


def _respond(ctx: Context, request: FetchRequest, fetch: Fetch, reading: _Reading) -> Response:
    reading.read(fetch.targets)
    if reading.has_enough(request):
        return _response(fetch, reading)
    return _Waiting(ctx, request, fetch, reading).response


def _respond_in_pace(ctx: Context, request: FetchRequest, fetch: Fetch, pacer: Pacer) -> Response:
    now = ctx.services.clock.monotonic()
    reading = _Reading(ctx, request, max_bytes=pacer.on_request(len(fetch.targets), now))
    response = _respond(ctx, request, fetch, reading)
    if isinstance(response, Deferred):
        pacer.on_parked()
        return response
    wait_seconds = pacer.on_response(reading.results, reading.size, now, request.max_wait_ms / 1000)
    return (
        response if wait_seconds <= 0 else _respond_later(ctx.services.woken.timers, wait_seconds, response)
    )


def _respond_later(timers: Timers, seconds: float, response: FetchResponse) -> Deferred[FetchResponse]:
    late: Deferred[FetchResponse] = Deferred(on_cancel=lambda: timers.cancel(late))
    timers.schedule(late, seconds * 1000, lambda: late.resolve(response))
    return late


def _response(fetch: Fetch, reading: _Reading) -> FetchResponse:
    response = fetch.response()
    fetch.add(response, reading.results)
    if reading.leaders is not None:
        response.node_endpoints = reading.leaders.endpoints
    return response


# Fetches of many partitions take turns with other requests.


def _respond_in_steps(ctx: Context, request: FetchRequest) -> Steps[Response]:
    targets = yield from targets_in_steps(request)
    fetch = _begin(ctx, request, targets)
    reading = _Reading(ctx, request)
    yield from _read_in_steps(reading, fetch)
    if reading.has_enough(request):
        return (yield from _response_in_steps(fetch, reading))
    return _LongWaiting(ctx, request, fetch, reading).response


def _read_in_steps(reading: _Reading, fetch: Fetch) -> Steps[None]:
    for targets in slices(fetch.targets, PARTITIONS_PER_STEP):
        reading.read(targets)
        yield


def _response_in_steps(fetch: Fetch, reading: _Reading) -> Steps[FetchResponse]:
    response = fetch.response()
    for results in slices(reading.results):
        fetch.add(response, results)
        yield
    if reading.leaders is not None:
        response.node_endpoints = reading.leaders.endpoints
    return response


class _Waiting:
    """A fetch that found too little. It reads again when there is more, or when its wait is over."""

    __slots__ = ("_ctx", "_deadline", "_fetch", "_parked", "_request", "response")

    def __init__(self, ctx: Context, request: FetchRequest, fetch: Fetch, reading: _Reading) -> None:
        self._ctx = ctx
        self._request = request
        self._fetch = fetch
        self._deadline = ctx.services.clock.monotonic() + request.max_wait_ms / 1000
        self.response: Deferred[FetchResponse] = Deferred(on_cancel=self._cancel)
        self._park(reading, request.max_wait_ms)

    def _park(self, reading: _Reading, max_wait_ms: float) -> None:
        self._parked = ParkedFetch(
            self._ctx.services.woken,
            reading.partitions,
            reading.missing_bytes,
            max_wait_ms,
            self._wake,
            reads_committed=self._request.isolation_level == READ_COMMITTED,
            is_follower=_follower(self._request) != CONSUMER,
        )

    def _wake(self) -> None:
        if self.response.cancelled:
            return
        reading = _Reading(self._ctx, self._request)
        reading.read(self._fetch.targets)
        if not self._parks_again(reading):
            self.response.resolve(_response(self._fetch, reading))

    def _parks_again(self, reading: _Reading) -> bool:
        """Wait on, if the end of a transaction has woken this fetch and revealed too few records."""
        rest_ms = (self._deadline - self._ctx.services.clock.monotonic()) * 1000
        if not self._parked.reads_committed or reading.urgent or reading.missing_bytes <= 0 or rest_ms <= 0:
            return False
        self._park(reading, rest_ms)
        return True

    def _cancel(self) -> None:
        self._parked.cancel()


class _LongWaiting(_Waiting):
    """The same for many partitions. Its turn comes when few other long requests are under way."""

    __slots__ = ()

    def _wake(self) -> None:
        self._ctx.services.loop.create_task(self._wake_in_turns())

    async def _wake_in_turns(self) -> None:
        try:
            async with self._ctx.services.long_requests:
                if self.response.cancelled:
                    return
                reading = _Reading(self._ctx, self._request)
                await finish(_read_in_steps(reading, self._fetch))
                if self.response.cancelled or self._parks_again(reading):
                    return
                response = await finish(_response_in_steps(self._fetch, reading))
        except Exception as error:
            self.response.fail(error)
        else:
            self.response.resolve(response)


class _Reading:
    """Reads the partitions of a request once, within its limits."""

    __slots__ = (
        "_aborted",
        "_api_version",
        "_broker_epoch",
        "_ctx",
        "_ends",
        "_follower",
        "_hosted",
        "_reads_committed",
        "_remaining_bytes",
        "leaders",
        "missing_bytes",
        "partitions",
        "results",
        "size",
        "urgent",
    )

    def __init__(self, ctx: Context, request: FetchRequest, max_bytes: int = MAX_BYTES) -> None:
        self._ctx = ctx
        self._api_version = ctx.api_version
        self._hosted = ctx.services.partitions
        self._remaining_bytes = min(request.max_bytes, ctx.services.config.fetch_max_bytes, max_bytes)
        self.missing_bytes = min(request.min_bytes, self._remaining_bytes)
        self._reads_committed = request.isolation_level == READ_COMMITTED
        self._follower = _follower(request)
        if self._follower != CONSUMER:
            self._ends: list[tuple[Log, int]] = []
            state = request.replica_state
            self._broker_epoch = NO_EPOCH if state is None else state.replica_epoch
        # The aborted transactions of most responses.
        self._aborted: list[AbortedTransaction] | None = [] if self._reads_committed else None
        self.results: list[tuple[Target, PartitionData]] = []
        self.partitions: list[Partition] = []
        self.size = 0
        self.leaders: CurrentLeaders | None = None
        """The leaders of partitions that this broker does not lead."""
        self.urgent = False
        """Whether the response must not wait for more bytes."""

    def has_enough(self, request: FetchRequest) -> bool:
        """Whether the response does not wait for more records."""
        if self.missing_bytes <= 0 or request.max_wait_ms <= 0 or self.urgent or not self.partitions:
            return True
        return self._follower != CONSUMER and self._was_overtaken()

    def _was_overtaken(self) -> bool:
        """Whether a follower's fetch has caused appends: what it commits lets coordinators go on.

        Such an append comes before the fetch is parked, so that it does not wake it.
        """
        return any(log.log_end_offset > end for log, end in self._ends)

    def read(self, targets: list[Target]) -> None:
        for target in targets:
            try:
                data = self._read(target)
            except KafkaError as error:
                self.urgent = True
                data = PartitionData(
                    partition_index=target.partition.partition,
                    error_code=error.error,
                    high_watermark=-1,
                    log_start_offset=self._log_start(target) if self._follower != CONSUMER else -1,
                    aborted_transactions=self._aborted,
                    records=b"",
                )
                if error.error in NAMES_LEADER and self._api_version >= CURRENT_LEADERS_FROM:
                    data.current_leader = self._find_leader(target)
            self.results.append((target, data))

    def _find_leader(self, target: Target) -> LeaderIdAndEpoch | None:
        if self.leaders is None:
            self.leaders = CurrentLeaders(self._ctx)
        name = self.leaders.name_of(target.topic, target.topic_id)
        return self.leaders.find(name, target.partition.partition)

    def _log_start(self, target: Target) -> int:
        """The start of a log, for a follower that retention has overtaken; -1 where unknown."""
        try:
            return self._hosted.leader_by_id(target.topic_id, target.partition.partition).log.log_start_offset
        except KafkaError:
            return -1

    def _read(self, target: Target) -> PartitionData:
        asked, version = target.partition, self._api_version
        if version >= TOPIC_IDS_FROM:
            partition = self._hosted.leader_by_id(target.topic_id, asked.partition)
        else:
            partition = self._hosted.leader(target.topic, asked.partition)
        log = partition.log
        if asked.current_leader_epoch != partition.leader_epoch:
            partition.check_leader_epoch(asked.current_leader_epoch)
        if version < ZSTD_FROM and log.config.compression_type == "zstd":
            raise KafkaError(Error.UNSUPPORTED_COMPRESSION_TYPE)
        data = PartitionData(
            partition_index=asked.partition,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=self._aborted,
            records=b"",
        )
        self.partitions.append(partition)
        if asked.last_fetched_epoch != NO_EPOCH:
            diverging = _diverging_epoch(partition, asked.last_fetched_epoch, asked.fetch_offset)
            if diverging is not None:
                self.urgent = True
                data.diverging_epoch = diverging
                return data
        max_bytes = min(asked.partition_max_bytes, self._remaining_bytes)
        end = data.last_stable_offset if self._reads_committed else data.high_watermark
        if self._follower != CONSUMER:
            end = log.log_end_offset
        # The first batch is always sent whole: a batch larger than every limit must not block its reader.
        records = log.read(asked.fetch_offset, max(max_bytes, 0), min_one_batch=self.size == 0, up_to=end)
        if self._follower != CONSUMER:
            self._ends.append((log, end))
            # Not before the read: it refuses an offset past the log's end.
            partition.record_fetch(
                self._follower, asked.fetch_offset, now=time.monotonic(), broker_epoch=self._broker_epoch
            )
            data.high_watermark = partition.high_watermark
        if records is not None:
            self.size += records.length
            self._remaining_bytes -= records.length
            self.missing_bytes -= records.length
            data.records = log.copy(records) if self.size <= COPIED_BYTES else records
            if self._reads_committed:
                data.aborted_transactions = _aborted(partition, asked.fetch_offset, records.next_offset)
            if asked.fetch_offset < log.segments[-1].base_offset < end:
                # A read ends with its segment. There is more, but no append will wake the fetch for it.
                self.urgent = True
        return data


def _follower(request: FetchRequest) -> int:
    """The broker that fetches to replicate; other negative ids than CONSUMER are those of debugging tools."""
    replica_id = request.replica_id if request.replica_state is None else request.replica_state.replica_id
    return max(replica_id, CONSUMER)


def _aborted(partition: Partition, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """The transactions whose records a `read_committed` consumer has to skip."""
    return [
        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in partition.log.aborted_transactions(start_offset, end_offset)
    ]


def _diverging_epoch(
    partition: Partition, last_fetched_epoch: int, fetch_offset: int
) -> EpochEndOffset | None:
    """The end of the epochs that the client's log shares with ours, if the logs diverge (KIP-595)."""
    epoch, end_offset = partition.epoch_end_offset(last_fetched_epoch)
    if epoch < 0 or end_offset < 0:
        raise KafkaError(Error.OFFSET_OUT_OF_RANGE)
    if epoch < last_fetched_epoch or end_offset < fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None
