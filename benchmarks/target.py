"""The broker that a load runs against."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.machine.usage import cpu_seconds, family


@dataclass(slots=True)
class Spent:
    """Time and CPU time of the measured parts of a load."""

    seconds: float = 0.0
    broker_cpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Target:
    """A broker's address and process id."""

    bootstrap: str
    pid: int

    @contextmanager
    def measured(self, spent: Spent | None = None) -> Iterator[Spent]:
        """Measure the time of a block and the broker's CPU time during it, and add both to `spent`."""
        spent = spent or Spent()
        cpu, started = cpu_seconds(self.pid), time.perf_counter()
        yield spent
        spent.seconds += time.perf_counter() - started
        spent.broker_cpu_seconds += cpu_seconds(self.pid) - cpu

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the broker's processes during another broker's measurement: an idle JVM uses CPU time too."""
        processes = family(self.pid)
        for process in processes:
            process.suspend()
        try:
            yield
        finally:
            for process in processes:
                process.resume()

    def create_topic(self, topic: str, partitions: int) -> None:
        admin = self._admin()
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
        # Apache Kafka's controller reports a topic as created before the broker leads its partitions.
        deadline = time.monotonic() + 30
        while not self._leads(topic):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} was created and did not appear")

    def _leads(self, topic: str) -> bool:
        try:
            return topic in self._admin().list_topics(timeout=30).topics and self.record_count(topic) == 0
        except KafkaException:
            return False

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, and wait until its files are removed, so that this is not measured next."""
        files = [Path(file.path) for process in family(self.pid) for file in process.open_files()]
        log_dirs = {file.parents[1] for file in files if file.parent.name.startswith(f"{topic}-")}
        admin = self._admin()
        admin.delete_topics([topic])[topic].result(30)
        deadline = time.monotonic() + 60
        while any(list(log_dir.glob(f"{topic}-*")) for log_dir in log_dirs):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} was deleted, and its files are still there")
            time.sleep(0.05)

    def consumer(self, settings: dict[str, str | int] | None = None) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "benchmark",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **(settings or {}),
            }
        )

    def partitions(self, topic: str) -> list[int]:
        admin = self._admin()
        return list(admin.list_topics(topic, timeout=30).topics[topic].partitions)

    def record_count(self, topic: str) -> int:
        """The number of records in a topic, from its partitions' offsets."""
        consumer = self.consumer()
        count = 0
        for partition in self.partitions(topic):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            count += high - low
        consumer.close()
        return count

    def _admin(self) -> AdminClient:
        # Errors are raised as exceptions; librdkafka's own messages would break the progress display.
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3})
