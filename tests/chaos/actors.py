"""Actors of a chaos run: producers on threads, group members in processes."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from .history import History, Ownership, Transaction

MEMBER = Path(__file__).with_name("member.py")
GIVE_UP_SECONDS = 60
RETRY_SECONDS = 0.1


class Actor(ABC, threading.Thread):
    """Repeats an action until it is stopped; a failure is kept for the test to raise."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.stopping = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.act()
        except BaseException as failure:
            self.failure = failure

    @abstractmethod
    def act(self) -> None:
        """Run until `stopping` is set."""

    def finish(self) -> None:
        self.stopping.set()
        self.join(GIVE_UP_SECONDS)
        if self.failure is not None:
            raise self.failure
        assert not self.is_alive(), f"{self.name} does not come to an end"


def client(bootstrap: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "reconnect.backoff.max.ms": 200,
        "retry.backoff.ms": 50,
        "linger.ms": 1,
        "log_level": 0,
        **more,
    }


class IdempotentProducer(Actor):
    """Sends numbered records; each must be in the log exactly once at the end."""

    def __init__(
        self, name: str, bootstrap: str, topic: str, partitions: int, seed: int, history: History
    ) -> None:
        super().__init__(name)
        self._settings = client(bootstrap, **{"enable.idempotence": True})
        self._topic = topic
        self._partitions = partitions
        self._chance = random.Random(seed)
        self._history = history

    def act(self) -> None:
        producer = Producer(self._settings)
        for number in count():
            if self.stopping.is_set():
                break
            value = f"{self.name}:{number}"
            producer.produce(
                self._topic,
                value,
                partition=self._chance.randrange(self._partitions),
                on_delivery=self._delivered,
            )
            if number % 10 == 0:
                producer.poll(0.005)
        assert producer.flush(GIVE_UP_SECONDS) == 0, "records were never acknowledged"

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failure = AssertionError(f"{message.value()!r} was not delivered: {error}")
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None and partition is not None and offset is not None
        self._history.acknowledge(value.decode(), partition, offset)


class TransactionalProducer(Actor):
    """Commits and aborts small transactions over several partitions."""

    def __init__(
        self, name: str, bootstrap: str, topic: str, partitions: int, seed: int, history: History
    ) -> None:
        super().__init__(name)
        settings = {"transactional.id": name, "transaction.timeout.ms": 10_000}
        self._settings = client(bootstrap, **settings)
        self._topic = topic
        self._partitions = partitions
        self._chance = random.Random(seed)
        self._history = history
        self._numbers = count()

    def act(self) -> None:
        producer = self._new_producer()
        while not self.stopping.is_set():
            transaction = Transaction(next(self._numbers))
            try:
                self._transact(producer, transaction)
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                if reason.txn_requires_abort():
                    # Before the commit is requested, an abort undoes the transaction for certain.
                    undone = transaction.committed is not None
                    retry(producer.abort_transaction)
                    transaction.committed = False if undone else transaction.committed
                else:
                    producer = self._new_producer()

    def _new_producer(self) -> Producer:
        producer = Producer(self._settings)
        retry(lambda: producer.init_transactions(GIVE_UP_SECONDS))
        return producer

    def _transact(self, producer: Producer, transaction: Transaction) -> None:
        # Before the commit is requested, every failure undoes the transaction.
        transaction.committed = False
        self._history.begin(transaction)
        producer.begin_transaction()
        for _ in range(self._chance.randint(1, 8)):
            value = f"{self.name}:{next(self._numbers)}"
            transaction.values.append(value)
            producer.produce(self._topic, value, partition=self._chance.randrange(self._partitions))
        if self._chance.random() < 0.3:
            retry(producer.abort_transaction)
            return
        transaction.committed = None
        retry(producer.commit_transaction)
        transaction.committed = True


def retry(attempt: Callable[[], object]) -> None:
    """Retry while the client reports a retriable error."""
    for _ in range(int(GIVE_UP_SECONDS / RETRY_SECONDS)):
        try:
            attempt()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            threading.Event().wait(RETRY_SECONDS)
    raise AssertionError("the client kept asking to try again")


class Member:
    """A group member's process, and the thread that reads its output."""

    def __init__(
        self, number: int, bootstrap: str, group: str, protocol: str, topic: str, history: History
    ) -> None:
        self.number = number
        self.group = group
        self._history = history
        self._owned: dict[int, Ownership] = {}
        self._frozen_at: float | None = None
        self._last_heard = 0.0
        self.failure: BaseException | None = None
        self._process = subprocess.Popen(
            [sys.executable, str(MEMBER), bootstrap, group, protocol, topic],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                self._hear(json.loads(line))
        except (ValueError, KeyError):
            # A line that was cut short by a kill.
            return
        except BaseException as failure:
            self.failure = failure

    def _hear(self, event: dict[str, Any]) -> None:
        at = event["at"]
        if event["event"] == "assigned":
            for partition in event["partitions"]:
                self._owned[partition] = Ownership(self.group, self.number, partition, at)
                self._history.own(self._owned[partition])
        elif event["event"] in ("revoked", "lost"):
            for partition in event["partitions"]:
                ended = self._owned.pop(partition, None)
                if ended is not None:
                    ended.until = min(ended.until, at)
        elif event["event"] == "read":
            self._history.saw(self.group, [value for _, _, value in event["records"]])
        self._last_heard = at

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        self._let_go()

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def die(self) -> None:
        self._process.kill()
        self._process.wait(GIVE_UP_SECONDS)
        self._listener.join(GIVE_UP_SECONDS)
        self._let_go()

    def leave(self) -> None:
        self._process.terminate()
        self._process.wait(GIVE_UP_SECONDS)
        self._listener.join(GIVE_UP_SECONDS)

    def _let_go(self) -> None:
        """The ownership of a frozen or dead member ends with its last event: others may own it later."""
        for ownership in self._owned.values():
            ownership.until = min(ownership.until, self._last_heard)
        self._owned.clear()
