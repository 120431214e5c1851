"""A real cluster under load and faults, and the proof that it kept its promises."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.testing.cluster import ClusterProcesses

TOPIC, PARTITIONS, REPLICAS = "ledger", 3, 3
SECONDS = 90


class Load:
    """Idempotent producers that write numbers, and what was acknowledged: offsets and values."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.failed = 0
        self._bootstrap = bootstrap
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "retry.backoff.ms": 50,
                "message.timeout.ms": 120_000,
                "log_level": 0,
            }
        )
        number = 0
        while not self._stopped.is_set():
            for partition in range(PARTITIONS):
                number += 1
                producer.produce(
                    TOPIC, f"{number}".encode(), partition=partition, on_delivery=self._delivered
                )
            producer.poll(0.003)
        producer.flush(SECONDS)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed += 1
            return
        place = (message.partition(), message.offset())
        assert place not in self.acknowledged, f"{place} was acknowledged twice"
        self.acknowledged[place] = message.value()


class Chaos:
    """One seed's faults on a cluster of processes."""

    def __init__(self, cluster: ClusterProcesses, seed: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    def create_topic(self) -> None:
        self._until(lambda: len(self._admin.list_topics(timeout=5).brokers) == len(self.cluster.brokers))
        # With one, the ISR may be the leader alone, which must not acknowledge what a pause made it miss.
        least = self.random.choice(("1", "2"))
        new = NewTopic(TOPIC, PARTITIONS, REPLICAS, config={"min.insync.replicas": least})
        for created in self._admin.create_topics([new]).values():
            created.result(30)

    def run(self, rounds: int) -> None:
        """Kill or pause a broker, mostly for longer than its session; then let it come back."""
        for _ in range(rounds):
            broker = self.random.choice(list(self.cluster.brokers.values()))
            pause = self.random.choice((0.2, 1.0, 3.0))
            if self.random.random() < 0.5:
                broker.kill9()
                time.sleep(pause)
                broker.start()
            else:
                broker.pause()
                time.sleep(pause)
                broker.resume()
            time.sleep(self.random.random())

    def wait_until_whole(self) -> None:
        def is_whole() -> bool:
            topic = self._admin.list_topics(TOPIC, timeout=5).topics[TOPIC]
            return len(topic.partitions) == PARTITIONS and all(
                len(partition.isrs) == REPLICAS for partition in topic.partitions.values()
            )

        self._until(is_whole)

    def _until(self, condition: object) -> None:
        assert callable(condition)
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                if condition():
                    return
            except Exception:
                if time.monotonic() > deadline:
                    raise
            assert time.monotonic() < deadline, "the cluster does not become whole again"
            time.sleep(0.1)


def read_all(bootstrap: str) -> dict[tuple[int, int], bytes]:
    """Every record of the topic, by partition and offset."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "checker", "enable.partition.eof": True, "log_level": 0}
    )
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    found: dict[tuple[int, int], bytes] = {}
    ended: set[int] = set()
    deadline = time.monotonic() + SECONDS
    while len(ended) < PARTITIONS and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error() is None:
            found[message.partition(), message.offset()] = message.value()
        elif message.error().code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
    consumer.close()
    assert len(ended) == PARTITIONS, "the topic cannot be read to its end"
    return found


def check_records(load: Load, found: dict[tuple[int, int], bytes]) -> None:
    """Each acknowledged record is where it was acknowledged, and nothing is there twice."""
    lost = {place: value for place, value in load.acknowledged.items() if found.get(place) != value}
    assert not lost, f"{len(lost)} acknowledged records are lost or changed, such as {list(lost.items())[:3]}"
    repeated = {value: count for value, count in Counter(found.values()).items() if count > 1}
    assert not repeated, f"idempotent records are there more than once: {list(repeated.items())[:3]}"


def check_replicas(directories: list[Path]) -> None:
    """The replicas of each partition have the same bytes."""
    for index in range(PARTITIONS):
        logs = [_log_bytes(directory / f"{TOPIC}-{index}") for directory in directories]
        assert len(set(logs)) == 1, f"the replicas of {TOPIC}-{index} differ: {[len(log) for log in logs]}"


def _log_bytes(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
