"""Point to point: the members of a group share the work; each message goes to one of them.

`python -m examples.point_to_point` starts its own broker; `--bootstrap localhost:9092` uses another one.
"""

from __future__ import annotations

import argparse
import contextlib
import threading
import time
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.testing import Broker

TOPIC = "jobs"
PARTITIONS = 4
GROUP = "workers"
TIMEOUT_SECONDS = 30.0


class Worker(threading.Thread):
    """A member of the group; it does the jobs of its assigned partitions."""

    def __init__(self, bootstrap: str, name: str) -> None:
        super().__init__(name=name)
        self.jobs: list[str] = []
        self.is_ready = threading.Event()
        self._is_leaving = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )

    def run(self) -> None:
        self._consumer.subscribe([TOPIC], on_assign=lambda *_: self.is_ready.set())
        while not self._is_leaving.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and not message.error():
                self.jobs.append(message.value().decode())
                # Committed after the work: another member repeats a job that was not finished.
                self._consumer.commit(message=message, asynchronous=False)
        self._consumer.close()

    def leave(self) -> None:
        self._is_leaving.set()
        self.join()


@contextlib.contextmanager
def at_work(bootstrap: str, count: int) -> Iterator[list[Worker]]:
    """Run this many workers, each with its share of the partitions."""
    workers = [Worker(bootstrap, f"worker-{number}") for number in range(1, count + 1)]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.is_ready.wait(TIMEOUT_SECONDS)
        yield workers
    finally:
        for worker in workers:
            worker.leave()


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    with contextlib.suppress(KafkaException):
        # The topic exists when the example runs again.
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(TIMEOUT_SECONDS)


def share(bootstrap: str, job_count: int, worker_count: int) -> dict[str, list[str]]:
    """Return the jobs that each worker has done."""
    create_topic(bootstrap)
    producer = Producer({"bootstrap.servers": bootstrap})
    with at_work(bootstrap, worker_count) as workers:
        for number in range(job_count):
            producer.produce(TOPIC, f"job {number}", partition=number % PARTITIONS)
        producer.flush(TIMEOUT_SECONDS)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while sum(len(worker.jobs) for worker in workers) < job_count and time.monotonic() < deadline:
            time.sleep(0.05)
    return {worker.name: worker.jobs for worker in workers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", help="brokers to use instead of starting one")
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--workers", type=int, default=3)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        # A short delay lets all workers join before partitions are assigned.
        own = {"group.initial.rebalance.delay.ms": "200"}
        bootstrap = options.bootstrap or stack.enter_context(Broker(own)).bootstrap
        for name, jobs in share(bootstrap, options.jobs, options.workers).items():
            print(f"{name} did {len(jobs)} of {options.jobs}: {', '.join(jobs)}")


if __name__ == "__main__":
    main()
