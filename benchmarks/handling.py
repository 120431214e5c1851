"""Time of the broker's own code for a request, with warm and with cold processor caches.

Run as `python -m benchmarks.handling [SOURCE]`: microseconds from a request's bytes to its response's bytes,
without the network, for the broker of this checkout or of another checkout's `src`. Between two bulk
requests, megabytes pass through the caches, and Python's code and data have to be fetched again: for bulk
requests, the cold figures count. On a quiet machine, figures vary less than those of a load, so that small
changes show. If other processes use the memory, twice the time is common.
"""

import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

PARTITIONS = 6
BATCHES = 60
BATCH_RECORDS = 950
RECORD_BYTES = 1000
REQUESTS = 300
# Twice the size of a core's own caches.
STREAMED_BYTES = 12 << 20


async def _measure() -> None:
    # After main() has chosen the source tree.
    from millrace.broker import Broker
    from millrace.config import BrokerConfig

    with tempfile.TemporaryDirectory() as directory:
        properties = {"log.dirs": directory, "listeners": "PLAINTEXT://127.0.0.1:0"}
        broker = Broker(BrokerConfig.from_properties(properties))
        await broker.start()
        topic_id = (await broker.node.metadata.create_topic("bulk", PARTITIONS)).topic_id
        await broker.node.metadata.create_topic("single", PARTITIONS)
        # Not encrypted, so without a certificate.
        connection: Any = SimpleNamespace(peer_certificate=None)
        dispatch = broker._new_client(connection, "127.0.0.1", 0)
        bulk = [_produce("bulk", partition, BATCH_RECORDS) for partition in range(PARTITIONS)]
        for frame in bulk * BATCHES:
            dispatch(frame)
        single = [_produce("single", partition, 1) for partition in range(PARTITIONS)]
        fetches = [_fetch(topic_id, BATCH_RECORDS * number) for number in range(BATCHES - 1)]
        print(f"{'µs':42} {'warm':>8} {'cold':>8}")
        _show("produce a record", single, dispatch)
        _show("fetch 1 MB from each of six partitions", fetches, dispatch)
        await broker.stop()


def _show(title: str, frames: list[memoryview], handle: Callable[[memoryview], object]) -> None:
    warm = _median(frames, handle, lambda: None)
    source, target = bytes(STREAMED_BYTES), memoryview(bytearray(STREAMED_BYTES))
    cold = _median(frames, handle, lambda: target.__setitem__(slice(None), source))
    print(f"{title:42} {warm:8.1f} {cold:8.1f}")


def _median(
    frames: list[memoryview], handle: Callable[[memoryview], object], prepare: Callable[[], object]
) -> float:
    gc.collect()
    times = []
    for number in range(REQUESTS):
        frame = frames[number % len(frames)]
        prepare()
        started = time.perf_counter_ns()
        handle(frame)
        times.append(time.perf_counter_ns() - started)
    return statistics.median(times) / 1000


def _produce(topic: str, partition: int, records: int) -> memoryview:
    """A Produce request in librdkafka's version."""
    from millrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
    from millrace.wire.records import Record, build_batch

    value, now_ms = b"x" * RECORD_BYTES, int(time.time() * 1000)
    batch = build_batch(Record(offset, now_ms, None, value) for offset in range(records))
    partitions = [PartitionProduceData(index=partition, records=batch)]
    topics = [TopicProduceData(name=topic, partition_data=partitions)]
    return _frame(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics), 10)


def _fetch(topic_id: bytes, offset: int) -> memoryview:
    """A Fetch request in librdkafka's version, with its default limits."""
    from millrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

    wanted = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index in range(PARTITIONS)
    ]
    topics = [FetchTopic(topic_id=topic_id, partitions=wanted)]
    return _frame(FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, topics=topics), 16)


def _frame(request: Any, version: int) -> memoryview:
    """A request's bytes without its size."""
    from millrace.wire.frames import encode_request

    return memoryview(encode_request(request, version, 1, "benchmark"))[4:]


def main(arguments: Iterable[str]) -> None:
    sys.path[:0] = arguments
    import uvloop

    uvloop.run(_measure())


if __name__ == "__main__":
    main(sys.argv[1:])
