"""The workloads of the comparison: load, size, and the bar of each figure."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Bar:
    """The required ratio of millrace's figure to Apache Kafka's."""

    ratio: float
    higher_is_better: bool

    def met_by(self, ratio: float) -> bool:
        return ratio >= self.ratio if self.higher_is_better else ratio <= self.ratio

    def __str__(self) -> str:
        return f"{'≥' if self.higher_is_better else '≤'} {self.ratio:g}x"


def at_least(ratio: float) -> Bar:
    return Bar(ratio, higher_is_better=True)


def at_most(ratio: float) -> Bar:
    return Bar(ratio, higher_is_better=False)


@dataclass(frozen=True, slots=True)
class Workload:
    """A load and its figures; a figure without a bar is for information."""

    name: str
    title: str
    load: str
    parameters: Mapping[str, object]
    scaled: str
    """The parameter for the amount of work; a quick run does a tenth."""
    partitions: int
    bars: Mapping[str, Bar | None]
    prefilled: bool = False
    """Whether the topic is filled before the first round."""

    @property
    def takes_pages(self) -> bool:
        """Whether it uses so many pages that their origin matters."""
        return self.load == "produce"

    def sized(self, *, quick: bool) -> dict[str, object]:
        parameters = dict(self.parameters)
        if quick:
            amount = parameters[self.scaled]
            assert isinstance(amount, int)
            parameters[self.scaled] = amount // 10
        return parameters


def _produce(name: str, title: str, bars: Mapping[str, Bar | None], **parameters: object) -> Workload:
    return Workload(name, title, "produce", parameters, "records", 6, bars)


def _consume(name: str, title: str, **parameters: object) -> Workload:
    return Workload(name, title, "consume", parameters, "records", 6, CONSUME_BARS, prefilled=True)


def _one_message(name: str, how: str, bar: Bar | None, *, connections: int) -> Workload:
    parameters = {"requests": 50_000, "record_bytes": 100, "connections": connections, "partitions": 6}
    bars = {"requests/s": bar, "broker CPU µs/request": None}
    title = f"produce requests of one 100 B record, {how}"
    return Workload(name, title, "one-message", parameters, "requests", 6, bars)


def _catch_up(record_bytes: int, records: int, *, large_queue: bool) -> Workload:
    """A Python application that reads a topic from its beginning, with librdkafka's default queue or more."""
    size = "1k" if record_bytes == 1000 else str(record_bytes)
    return Workload(
        f"catch-up-{size}{'-large-queue' if large_queue else ''}",
        f"catch up on {'1 KB' if size == '1k' else '100 B'} records in Python (confluent-kafka),"
        f" {'a large queue' if large_queue else 'the default queue'}",
        "catch-up",
        {
            "records": records,
            "record_bytes": record_bytes,
            "settings": dict(LARGE_QUEUE) if large_queue else {},
        },
        "records",
        6,
        {"records/s": at_least(1.0), "stops": None},
        prefilled=True,
    )


LARGE_QUEUE = {"queued.min.messages": 1_000_000, "queued.max.messages.kbytes": 1_000_000}

SMALL_RECORD_BARS = {"MB/s": at_least(1.0), "broker CPU s/GB": at_most(0.4)}
CONSUME_BARS = {"MB/s": at_least(1.0), "broker CPU s/GB": at_most(0.4)}

WORKLOADS = (
    _produce(
        "produce-100-acks-1",
        "produce 100 B records, acks=1",
        SMALL_RECORD_BARS,
        records=3_000_000,
        record_bytes=100,
        acks="1",
    ),
    _produce(
        "produce-100-acks-all",
        "produce 100 B records, acks=all",
        SMALL_RECORD_BARS,
        records=3_000_000,
        record_bytes=100,
        acks="all",
    ),
    _produce(
        "produce-100-idempotent",
        "produce 100 B records, idempotent",
        SMALL_RECORD_BARS,
        records=3_000_000,
        record_bytes=100,
        idempotent=True,
    ),
    _produce(
        "produce-1k",
        "produce 1 KB records, 6 partitions",
        {"MB/s": at_least(2.0), "broker CPU s/GB": at_most(0.3)},
        records=600_000,
        record_bytes=1000,
        acks="1",
    ),
    _consume("consume-100", "consume 100 B records", records=5_000_000, record_bytes=100),
    _consume("consume-1k", "consume 1 KB records", records=2_000_000, record_bytes=1000),
    *(
        _catch_up(record_bytes, records, large_queue=large_queue)
        for record_bytes, records in ((100, 2_000_000), (1000, 500_000))
        for large_queue in (False, True)
    ),
    _one_message("one-message", "over one connection", at_least(4.0), connections=1),
    _one_message("one-message-8", "over eight connections", None, connections=8),
    Workload(
        "ack-latency",
        "acknowledgement latency, one record on its way",
        "ack-latency",
        {"samples": 10_000, "record_bytes": 100},
        "samples",
        1,
        {"p50 ms": at_most(0.8), "p99 ms": at_most(0.8), "broker CPU µs each": None},
    ),
    Workload(
        "end-to-end",
        "end-to-end latency, producer to consumer",
        "end-to-end",
        {"samples": 10_000, "record_bytes": 100},
        "samples",
        1,
        {"p50 ms": at_most(0.6), "p99 ms": at_most(0.6), "broker CPU µs each": None},
    ),
)

READY = "ready"
READY_BARS = {"ready after start, s": at_most(0.1)}
MEMORY_BARS = {"idle, MB": at_most(0.1), "after the load, MB": at_most(0.1)}


@dataclass(frozen=True, slots=True)
class Suite:
    """Workloads that run one after the other on the same two brokers, and share a table."""

    workloads: tuple[Workload, ...]
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties of both brokers, besides their defaults."""
    starts_and_memory: bool = False
    """Whether start and memory are compared too."""

    @property
    def names(self) -> list[str]:
        names = [workload.name for workload in self.workloads]
        return [READY, *names] if self.starts_and_memory else names
