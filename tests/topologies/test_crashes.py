"""Workers and the broker killed at random: exactly-once counts are exact, at-least-once ones never too low.

The first seed runs always; more of them, Spark's standalone cluster and Apache Kafka run with `make proof`.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer

from millrace.testing import BrokerProcess
from millrace.topologies.running import prepare
from millrace.topologies.runtime.processes import Processes

from ..reading import read_topic

WORD_COUNT = Path(__file__).parents[2] / "examples" / "topologies" / "wordcount.py"
SENTENCES = 3000
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.proof) for seed in range(1, 8))]
SECONDS = 240

RELAY = """
from millrace.topologies import Bolt, Grouping, LogBolt, LogSpout, Topology

class Split(Bolt):
    outputs = ["word"]

    def process(self, tup):
        for word in tup["value"].split():
            self.emit([word])

class Relay(Topology):
    sentences = LogSpout.spec("sentences", par=2)
    split = Split.spec(inputs=[sentences], par=3)
    out = LogBolt.spec("counts", inputs={split: Grouping.fields("word")}, par=2)
"""


def write_sentences(bootstrap: str, count: int, seed: int) -> Counter[str]:
    producer, words = Producer({"bootstrap.servers": bootstrap}), random.Random(seed)
    expected: Counter[str] = Counter()
    for _ in range(count):
        sentence = [f"word{words.randrange(50)}" for _ in range(8)]
        expected.update(sentence)
        producer.produce("sentences", " ".join(sentence))
    assert producer.flush(60) == 0
    return expected


def newest_counts(bootstrap: str) -> tuple[dict[str, int], int]:
    newest: dict[str, int] = {}
    number = 0
    for message in read_topic(bootstrap, "counts"):
        record = json.loads(message.value() or b"")
        newest[record["word"]] = max(newest.get(record["word"], 0), record["count"])
        number += 1
    return newest, number


class Killer(threading.Thread):
    """Kills workers, and the broker once, at random moments."""

    def __init__(self, processes: Processes, broker: BrokerProcess, seed: int) -> None:
        super().__init__()
        self._processes = processes
        self._broker = broker
        self._chance = random.Random(seed)
        self._over = threading.Event()
        self.kills: list[str] = []

    def run(self) -> None:
        victims = ["worker", "broker", "worker"]
        self._chance.shuffle(victims)
        for victim in victims:
            if self._over.wait(self._chance.uniform(0.2, 1.5)):
                return
            if victim == "broker":
                self._broker.kill9()
                self._broker.start()
            else:
                pid = self._chance.choice(self._processes.workers).pid
                if pid is not None:
                    os.kill(pid, signal.SIGKILL)
            self.kills.append(victim)

    def end(self) -> None:
        self._over.set()
        self.join()


def run_with_kills(path: Path, broker: BrokerProcess, seed: int) -> None:
    processes = Processes(prepare(path, broker.bootstrap, workers=2))
    killer = Killer(processes, broker, seed)
    killer.start()
    try:
        processes.run(once=True)
    finally:
        killer.end()
    assert killer.kills


@pytest.mark.parametrize("seed", SEEDS)
def test_exactly_once_counts_are_exact_whatever_is_killed(seed: int) -> None:
    with BrokerProcess({"num.partitions": "4"}) as broker:
        expected = write_sentences(broker.bootstrap, SENTENCES, seed)
        run_with_kills(WORD_COUNT, broker, seed)
        assert newest_counts(broker.bootstrap) == (dict(expected), SENTENCES * 8)


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(4))
def test_at_least_once_loses_nothing_whatever_is_killed(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "relay.py"
    path.write_text(RELAY)
    with BrokerProcess({"num.partitions": "4"}) as broker:
        expected = write_sentences(broker.bootstrap, SENTENCES, seed)
        run_with_kills(path, broker, seed)
        written = Counter(
            json.loads(message.value() or b"")["word"] for message in read_topic(broker.bootstrap, "counts")
        )
        assert not expected - written


# Other clusters


def run_word_count(bootstrap: str, *options: str) -> None:
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "millrace",
                "topology",
                "run",
                str(WORD_COUNT),
                "--once",
                "--workers",
                "2",
            ),
            *("--bootstrap-server", bootstrap, *options),
        ],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.proof
@pytest.mark.java
def test_the_same_topology_runs_on_a_standalone_cluster_of_spark() -> None:
    from millrace.testing.standalone_spark import StandaloneSpark

    with BrokerProcess({"num.partitions": "4"}) as broker, StandaloneSpark(workers=2) as cluster:
        expected = write_sentences(broker.bootstrap, 300, 0)
        run_word_count(broker.bootstrap, "--master", cluster.master)
        assert newest_counts(broker.bootstrap) == (dict(expected), 2400)


@pytest.mark.proof
@pytest.mark.java
def test_the_same_topology_runs_on_apache_kafka() -> None:
    from millrace.testing.apache_kafka import ApacheKafka

    with ApacheKafka({"num.partitions": "4"}) as broker:
        expected = write_sentences(broker.bootstrap, 300, 0)
        run_word_count(broker.bootstrap, "--no-spark")
        assert newest_counts(broker.bootstrap) == (dict(expected), 2400)
