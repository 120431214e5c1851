"""Producers, transactions, groups, and a broker that is killed: the guarantees hold in every case.

A few seconds by default, five minutes with `make soak`; MILLRACE_CHAOS_SECONDS sets another duration, and
MILLRACE_CHAOS_SEED another seed. The seed decides which faults happen when, as far as threads allow.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.testing import BrokerProcess

from .actors import IdempotentProducer, Member, TransactionalProducer
from .history import History, Stored, check

TOPIC = "chaos"
PARTITIONS = 4
SECONDS = float(os.environ.get("MILLRACE_CHAOS_SECONDS", "8"))
SOAK_SECONDS = float(os.environ.get("MILLRACE_CHAOS_SECONDS", "300"))
SEED = int(os.environ.get("MILLRACE_CHAOS_SEED", "1"))
SETTLE_SECONDS = 90
# Short timeouts, so that dead and frozen members are noticed during the run.
BROKER_PROPERTIES = {
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "1500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "log.segment.bytes": "262144",
}


@pytest.mark.slow
@pytest.mark.timeout(SOAK_SECONDS + 4 * SETTLE_SECONDS)
@pytest.mark.parametrize("seconds", [SECONDS, pytest.param(SOAK_SECONDS, marks=pytest.mark.soak)])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_guarantees_hold_through_crashes(protocol: str, seconds: float, tmp_path: Path) -> None:
    print(f"MILLRACE_CHAOS_SEED={SEED}")
    with BrokerProcess(BROKER_PROPERTIES, data_dir=tmp_path) as broker:
        try:
            Chaos(broker, protocol, SEED).run(seconds)
        except BaseException:
            print(broker.log_file.read_text()[-20_000:])
            raise
        log = broker.log_file.read_text()
        assert "a bug:" not in log and "Traceback" not in log, log[-20_000:]


class Chaos:
    """One run: all actors at work, frequent faults, a quiet end, and the check."""

    def __init__(self, broker: BrokerProcess, protocol: str, seed: int) -> None:
        self._broker = broker
        self._protocol = protocol
        self._chance = random.Random(seed)
        self._history = History()
        self._members: list[Member] = []
        self._born = 0
        self._create_topic()
        facts = (broker.bootstrap, TOPIC, PARTITIONS)
        self._producers = [
            *(IdempotentProducer(f"i{n}", *facts, seed + n, self._history) for n in range(2)),
            *(TransactionalProducer(f"t{n}", *facts, seed + n, self._history) for n in range(2)),
        ]

    def _create_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)

    def run(self, seconds: float) -> None:
        for producer in self._producers:
            producer.start()
        for group in ("g0", "g1", "g0"):
            self._join(group)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self._chance.uniform(0.2, 1.0))
            self._break_something()
        for producer in self._producers:
            producer.finish()
        stored = self._stored()
        self._settle(sum(map(len, stored.values())))
        for member in self._members:
            member.leave()
            if member.failure is not None:
                raise member.failure
        check(self._history, stored)
        assert self._history.acknowledged and any(t.committed for t in self._history.transactions)

    def _join(self, group: str) -> None:
        self._born += 1
        facts = (self._broker.bootstrap, group, self._protocol, TOPIC)
        self._members.append(Member(self._born, *facts, self._history))

    def _break_something(self) -> None:
        what = self._chance.choices(
            [
                self._kill_broker,
                self._restart_broker,
                self._add,
                self._remove,
                self._kill_member,
                self._freeze,
            ],
            weights=[3, 1, 3, 2, 2, 2],
        )[0]
        what()

    def _kill_broker(self) -> None:
        self._broker.kill9()
        self._broker.start()

    def _restart_broker(self) -> None:
        self._broker.restart()

    def _add(self) -> None:
        if len(self._members) < 6:
            self._join(self._chance.choice(["g0", "g1"]))

    def _take_one(self) -> Member | None:
        """A member that may be removed: each group keeps at least one."""
        groups = [member.group for member in self._members]
        spare = [member for member in self._members if groups.count(member.group) > 1]
        return self._chance.choice(spare) if spare else None

    def _remove(self) -> None:
        member = self._take_one()
        if member is not None:
            self._members.remove(member)
            member.leave()

    def _kill_member(self) -> None:
        member = self._take_one()
        if member is not None:
            self._members.remove(member)
            member.die()

    def _freeze(self) -> None:
        member = self._take_one()
        if member is not None:
            member.freeze()
            time.sleep(self._chance.uniform(0.5, 3.0))
            member.thaw()

    def _stored(self) -> Stored:
        """Everything that a read_committed reader finds."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._broker.bootstrap,
                "group.id": "checker",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        stored: Stored = {partition: [] for partition in range(PARTITIONS)}
        at_end: set[int | None] = set()
        while len(at_end) < PARTITIONS:
            message = consumer.poll(SETTLE_SECONDS)
            assert message is not None, "the log cannot be read to its end"
            if message.error() is not None:
                at_end.add(message.partition())
                continue
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None and offset is not None and value is not None
            stored[partition].append((offset, value.decode()))
        consumer.close()
        return stored

    def _settle(self, expected: int) -> None:
        """Wait until every group has seen everything; the checker reports what a group has missed."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            if all(len(self._history.read[group]) >= expected for group in ("g0", "g1")):
                return
            time.sleep(0.1)
