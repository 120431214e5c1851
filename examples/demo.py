"""The platform at work: start a broker, feed it a million events, read them back, show the figures.

Run it with `make demo`, or `python -m examples.demo --records 5000000`.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psutil
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from millrace.testing import BrokerProcess

TOPIC = "page-views"
PARTITIONS = 6
PAGES = ("/", "/search", "/cart", "/checkout", "/account", "/help")
SILENCE_SECONDS = 30.0


@dataclass
class Leg:
    """One way through the log, and how fast it went."""

    name: str
    records: int
    size: int
    seconds: float

    def row(self) -> tuple[str, str, str, str]:
        per_second = self.records / self.seconds
        megabytes = self.size / self.seconds / 1e6
        return self.name, f"{self.records:,}", f"{per_second:,.0f}", f"{megabytes:,.0f} MB/s"


def events(count: int, seed: int = 7) -> Iterator[tuple[bytes, bytes]]:
    """Page views as (user, JSON): the same ones for the same seed."""
    chance = random.Random(seed)
    # Drawing from a prepared pool keeps the generator out of the measurement.
    pool = []
    for _ in range(10_000):
        user = f"user-{chance.randrange(5_000)}"
        view = {"user": user, "page": chance.choice(PAGES), "ms": int(chance.expovariate(1 / 120))}
        pool.append((user.encode(), json.dumps(view).encode()))
    for number in range(count):
        yield pool[number % len(pool)]


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(SILENCE_SECONDS)


def feed(bootstrap: str, count: int, progress: Progress) -> Leg:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 500_000}
    )
    task = progress.add_task("[cyan]feeding the log", total=count)
    size, began = 0, time.perf_counter()
    for number, (key, value) in enumerate(events(count), 1):
        while True:
            try:
                producer.produce(TOPIC, value, key)
                break
            except BufferError:
                producer.poll(0.05)
        size += len(key) + len(value)
        if number % 10_000 == 0:
            producer.poll(0)
            progress.update(task, completed=number)
    left = producer.flush(SILENCE_SECONDS)
    if left:
        raise SystemExit(f"{left} records were not acknowledged within {SILENCE_SECONDS:.0f} s")
    progress.update(task, completed=count)
    return Leg("produced, acknowledged", count, size, time.perf_counter() - began)


def read_back(bootstrap: str, count: int, progress: Progress) -> Leg:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "demo",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
        }
    )
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    task = progress.add_task("[green]reading it back", total=count)
    read, size, began = 0, 0, time.perf_counter()
    while read < count:
        batch = consumer.consume(10_000, timeout=SILENCE_SECONDS)
        if not batch:
            raise SystemExit(f"only {read:,} of {count:,} records came back")
        size += sum(_size(message) for message in batch)
        read += len(batch)
        progress.update(task, completed=read)
    consumer.close()
    return Leg("consumed", read, size, time.perf_counter() - began)


def _size(message: Message) -> int:
    return len(message.key() or b"") + len(message.value() or b"")


def show(console: Console, legs: list[Leg], ready_ms: float, resident_mb: float, cpu_seconds: float) -> None:
    table = Table(title="one broker, one producer, one consumer, on this machine")
    table.add_column("")
    for heading in ("records", "records/s", "throughput"):
        table.add_column(heading, justify="right")
    for leg in legs:
        table.add_row(*leg.row())
    console.print(table)
    console.print(
        f"broker: ready in {ready_ms:.0f} ms, {resident_mb:.0f} MB resident, {cpu_seconds:.1f} s of CPU used"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    count = parser.parse_args().records
    console = Console()
    began = time.perf_counter()
    with BrokerProcess() as broker:
        ready_ms = (time.perf_counter() - began) * 1000
        console.print(f"a Kafka broker is at [bold]{broker.bootstrap}[/bold], data in {broker.data_dir}")
        create_topic(broker.bootstrap)
        columns = (
            TextColumn("{task.description:>22}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=console) as progress:
            legs = [feed(broker.bootstrap, count, progress), read_back(broker.bootstrap, count, progress)]
        process = psutil.Process(broker.pid)
        cpu = process.cpu_times()
        show(console, legs, ready_ms, process.memory_info().rss / 1e6, cpu.user + cpu.system)
    console.print("stopped and cleaned up. Next: [bold]millrace up[/bold], then use any Kafka client.")


if __name__ == "__main__":
    main()
