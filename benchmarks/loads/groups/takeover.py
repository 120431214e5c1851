"""Time from a member's death until the other member reads its partitions."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.loads.groups.settings import (
    HEARTBEAT_MS,
    SESSION_TIMEOUT_MS,
    consumer_settings,
    new_group,
)
from benchmarks.loads.latency import percentile
from benchmarks.target import Target

PARTITIONS = 2
POLL_SECONDS = 0.02
PRODUCE_SECONDS = 0.02
PATIENCE_SECONDS = 60
# On average, a member's last heartbeat is half an interval old when it dies.
SESSION_END_MS = SESSION_TIMEOUT_MS - HEARTBEAT_MS / 2
# Let the last rebalance end for all members.
SETTLING_SECONDS = 1.5


class Survivor:
    """A member that keeps reading, and notes when the first record of each partition arrives."""

    def __init__(self, target: Target, topic: str, protocol: str, group: str) -> None:
        self.first_seen: dict[int, float] = {}
        self.owned: set[int] = set()
        self._consumer = Consumer(consumer_settings(target.bootstrap, group, protocol))
        self._consumer.subscribe([topic], on_assign=self._gain, on_revoke=self._lose, on_lost=self._lose)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._stopped.is_set():
            message = self._consumer.poll(POLL_SECONDS)
            partition = None if message is None or message.error() else message.partition()
            if partition is not None:
                self.first_seen.setdefault(partition, time.monotonic())

    def _gain(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned |= {gained.partition for gained in partitions}

    def _lose(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned -= {lost.partition for lost in partitions}

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._consumer.close()


def after_death(target: Target, *, topic: str, protocol: str, groups: int) -> dict[str, float]:
    """Kill one of two members in each group, all at the same time."""
    names = [new_group() for _ in range(groups)]
    with ExitStack() as stack:
        stack.enter_context(_producing(target, topic))
        victims = stack.enter_context(_victims(target, topic, protocol, names))
        survivors = []
        for name in names:
            survivors.append(Survivor(target, topic, protocol, name))
            stack.callback(survivors[-1].close)
        _wait_for(lambda: all(len(survivor.owned) == 1 for survivor in survivors), "a partition each")
        time.sleep(SETTLING_SECONDS)
        inherited = [(set(range(PARTITIONS)) - survivor.owned).pop() for survivor in survivors]
        for survivor in survivors:
            survivor.first_seen.clear()
        victims.kill()
        killed_at = time.monotonic()
        _wait_for(
            lambda: all(
                survivor.first_seen.get(partition)
                for survivor, partition in zip(survivors, inherited, strict=True)
            ),
            "records of the dead members' partitions",
        )
    seconds = [
        survivor.first_seen[partition] - killed_at
        for survivor, partition in zip(survivors, inherited, strict=True)
    ]
    median = percentile(seconds, 50)
    return {"seconds": median, "of that after the sessions' end, ms": median * 1000 - SESSION_END_MS}


@contextmanager
def _victims(target: Target, topic: str, protocol: str, groups: list[str]) -> Iterator[subprocess.Popen[str]]:
    command = [
        sys.executable,
        "-m",
        "benchmarks.loads.groups.victims",
        target.bootstrap,
        topic,
        protocol,
        *groups,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if not process.stdout.readline():
                raise RuntimeError("the members to kill did not start")
            yield process
        finally:
            process.kill()


@contextmanager
def _producing(target: Target, topic: str) -> Iterator[None]:
    """Produce a record to every partition repeatedly."""
    producer = Producer({"bootstrap.servers": target.bootstrap, "linger.ms": 0})
    stopped = threading.Event()

    def produce() -> None:
        while not stopped.wait(PRODUCE_SECONDS):
            for partition in range(PARTITIONS):
                producer.produce(topic, b"x" * 100, partition=partition)
            producer.poll(0)

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
        producer.flush()


def _wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the members did not get {what} within {PATIENCE_SECONDS} s")
        time.sleep(POLL_SECONDS)
