"""Tuples between workers: trimmed, signed, held back by lag, and given up one by one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from millrace.testing import Broker
from millrace.topologies import Bolt, Grouping, LogBolt, LogSpout, Topology, Tuple
from millrace.topologies.running import prepare
from millrace.topologies.runtime import topics
from millrace.topologies.runtime.figures import decode_figures
from millrace.topologies.runtime.lag import LAGGING_SECONDS, Lag
from millrace.topologies.runtime.processes import Processes

from ..reading import read_topic

RELAY = """
import time
from millrace.topologies import Bolt, Grouping, LogBolt, LogSpout, Topology

class Relay(Bolt):
    outputs = ["number"]

    def process(self, tup):
        self.emit([tup["value"]])

class Check(Bolt):
    outputs = ["number"]

    def process(self, tup):
        time.sleep({sleep})
        if tup["number"] == "13":
            raise ValueError("thirteen")
        self.emit([tup["number"]])

class Relayed(Topology):
    guarantee = {guarantee!r}
    numbers = LogSpout.spec("{name}-in")
    relay = Relay.spec(inputs=[numbers])
    check = Check.spec(inputs=[relay], par=2, config={{"topology.dead.letter.topic": "{name}-unchecked"}})
    out = LogBolt.spec("{name}-out", inputs=[check], value="number")
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def write_numbers(broker: Broker, topic: str, count: int, padding: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, f"{number:0{padding}d}" if padding else str(number))
    assert producer.flush(30) == 0


def values_of(broker: Broker, topic: str) -> list[str]:
    return [(record.value() or b"").decode() for record in read_topic(broker.bootstrap, topic)]


def relay_file(directory: Path, name: str, guarantee: str, sleep: float = 0.0) -> Path:
    path = directory / f"{name}.py"
    path.write_text(RELAY.format(name=name, guarantee=guarantee, sleep=sleep))
    return path


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_poison_tuple_of_a_frame_is_given_up_alone_and_a_forged_frame_is_ignored(
    broker: Broker, tmp_path: Path, guarantee: str
) -> None:
    name = f"poison-{guarantee}"
    write_numbers(broker, f"{name}-in", 100)
    job = prepare(relay_file(tmp_path, name, guarantee), broker.bootstrap, workers=2, name=name)
    forger = Producer({"bootstrap.servers": broker.bootstrap})
    for partition in (0, 1):
        forger.produce(topics.edge_topic(name, "check"), b"x" * 40, partition=partition)
    assert forger.flush(30) == 0
    Processes(job).run(once=True)
    expected = sorted(str(number) for number in range(100) if number != 13)
    assert sorted(values_of(broker, f"{name}-out")) == expected
    letters = list(read_topic(broker.bootstrap, f"{name}-unchecked"))
    # Relayed to the other worker it is a tuple; within a worker the record itself is given up.
    assert [b"13" in (letter.value() or b"") for letter in letters] == [True]
    headers = dict(letters[0].headers() or [])
    assert headers["component"] == b"check"
    assert b"thirteen" in headers["reason"]
    errors = [
        error.error
        for record in read_topic(broker.bootstrap, topics.METRICS)
        if (figures := decode_figures(record.value() or b"")).topology == name
        for error in figures.errors
    ]
    assert any("without a valid signature" in error for error in errors)


def test_edge_topics_are_trimmed_up_to_what_is_committed_and_lag_slows_the_source_down(
    broker: Broker, tmp_path: Path
) -> None:
    name, limit = "slow", 100_000
    write_numbers(broker, f"{name}-in", 600, padding=2000)
    job = prepare(
        relay_file(tmp_path, name, "at-least-once", sleep=0.005),
        broker.bootstrap,
        workers=2,
        name=name,
        config={"topology.max.internal.lag.bytes": limit},
    )
    Processes(job).run(once=True)
    assert len(values_of(broker, f"{name}-out")) == 600
    lags = [
        sum(figures.lag_bytes.values())
        for record in read_topic(broker.bootstrap, topics.METRICS)
        if (figures := decode_figures(record.value() or b"")).topology == name
    ]
    # Everything waits at once without the limit: 1.2 MB. One turn of the loop is sent before a worker looks.
    assert max(lags) < 1_150_000
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topics.group_of(name)})
    try:
        edge = topics.edge_topic(name, "check")
        (committed, *_) = consumer.committed([TopicPartition(edge, 0), TopicPartition(edge, 1)], 30)
        ends = [consumer.get_watermark_offsets(TopicPartition(edge, index), 30) for index in (0, 1)]
    finally:
        consumer.close()
    trimmed = [low for low, _ in ends]
    assert max(trimmed) > 0
    assert committed.offset < 0 or trimmed[0] <= committed.offset


# The lag of one worker


class Pass(Bolt):
    outputs = ["value"]

    def process(self, tup: Tuple) -> None:
        self.emit([tup["value"]])


class Chain(Topology):
    lines = LogSpout.spec("lines")
    first = Pass.spec(inputs=[lines])
    second = Pass.spec(inputs={first: Grouping.SHUFFLE}, par=3)
    out = LogBolt.spec("out", inputs=[second])


def test_a_component_is_held_back_by_its_descendants_until_half_is_processed() -> None:
    plan = Chain.plan()
    lag = Lag(plan, limit_bytes=1000)
    first, *_ = plan.tasks["second"]
    for offset in range(10):
        lag.sent(first, 200)
        lag.written(first, 200, offset)
    assert lag.of(first) == 2000
    assert lag.held_back() == {"lines", "first"}
    lag.processed(first, 6)
    assert lag.of(first) == 800
    assert lag.held_back() == {"lines", "first"}
    lag.processed(first, 8)
    assert lag.held_back() == frozenset()


def test_frames_of_an_aborted_transaction_do_not_count() -> None:
    plan = Chain.plan()
    lag = Lag(plan, limit_bytes=1000)
    (task, *_) = plan.tasks["second"]
    lag.sent(task, 5000)
    lag.dropped(task, 5000)
    assert lag.of(task) == 0


def test_a_task_far_behind_its_peers_is_named_once_it_has_been_so_for_a_while() -> None:
    plan = Chain.plan()
    lag = Lag(plan, limit_bytes=10**9)
    slow, *others = plan.tasks["second"]
    for task, size in ((slow, 50_000_000), (others[0], 100_000), (others[1], 200_000)):
        lag.sent(task, size)
        lag.written(task, size, 7)
    assert lag.laggards(0.0) == []
    assert lag.laggards(LAGGING_SECONDS / 2) == []
    ((component, task, waiting, median),) = lag.laggards(LAGGING_SECONDS)
    assert (component, task, waiting, median) == ("second", slow, 50_000_000, 150_000)
    lag.processed(slow, 8)
    assert lag.laggards(3 * LAGGING_SECONDS) == []
