"""Topologies over a real log: plain worker processes and Spark's, killed, restarted and poisoned."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from millrace.testing import Broker
from millrace.topologies.running import prepare
from millrace.topologies.runtime.processes import Processes

from ..reading import read_topic
from ..waiting import until

WORD_COUNT = Path(__file__).parents[2] / "examples" / "topologies" / "wordcount.py"
SECONDS = 120

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"num.partitions": "4"}) as broker:
        yield broker


def write_sentences(broker: Broker, topic: str, count: int, seed: int = 0) -> Counter[str]:
    """Write sentences of eight words; returns how often each word is in them."""
    producer, words = Producer({"bootstrap.servers": broker.bootstrap}), random.Random(seed)
    expected: Counter[str] = Counter()
    for _ in range(count):
        sentence = [f"word{words.randrange(50)}" for _ in range(8)]
        expected.update(sentence)
        producer.produce(topic, " ".join(sentence))
    assert producer.flush(30) == 0
    return expected


def counts_of(broker: Broker, topic: str) -> tuple[dict[str, int], int]:
    """The newest count of each word, and the number of records."""
    records = [json.loads(message.value()) for message in read_topic(broker.bootstrap, topic)]
    newest: dict[str, int] = {}
    for record in records:
        newest[record["word"]] = max(newest.get(record["word"], 0), record["count"])
    return newest, len(records)


def topology_file(directory: Path, **replaced: str) -> Path:
    """The example, with its topics and its guarantee replaced, so that tests do not meet."""
    text = WORD_COUNT.read_text()
    for old, new in replaced.items():
        text = text.replace(f'"{old.replace("_", "-")}"', f'"{new}"')
    path = directory / "topology.py"
    path.write_text(text)
    return path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "millrace", "topology", "run", *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def test_words_are_counted_exactly_and_the_state_goes_on_in_the_next_run(
    broker: Broker, tmp_path: Path
) -> None:
    path = topology_file(tmp_path, sentences="lines-1", counts="counts-1")
    expected = write_sentences(broker, "lines-1", 300)
    arguments = (str(path), "--bootstrap-server", broker.bootstrap, "--no-spark", "--once", "--name", "one")
    first = run(*arguments, "--workers", "2")
    assert first.returncode == 0, first.stderr
    assert counts_of(broker, "counts-1") == (dict(expected), 2400)
    # Another placement of the same tasks: keys stay with their task, and each task finds its state.
    expected += write_sentences(broker, "lines-1", 100, seed=1)
    second = run(*arguments, "--workers", "3")
    assert second.returncode == 0, second.stderr
    assert counts_of(broker, "counts-1") == (dict(expected), 3200)


def test_workers_end_when_their_parent_is_killed(broker: Broker, tmp_path: Path) -> None:
    path = topology_file(tmp_path, sentences="lines-0", counts="counts-0")
    expected = write_sentences(broker, "lines-0", 10)
    arguments = (str(path), "--bootstrap-server", broker.bootstrap, "--no-spark", "--workers", "2")
    parent = psutil.Popen([sys.executable, "-m", "millrace", "topology", "run", *arguments, "--name", "zero"])
    until(lambda: counts_of(broker, "counts-0")[0] == dict(expected))
    workers = parent.children(recursive=True)
    assert len(workers) == 2
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert not alive


@pytest.mark.java
def test_the_same_file_runs_on_spark(broker: Broker, tmp_path: Path) -> None:
    path = topology_file(tmp_path, sentences="lines-2", counts="counts-2")
    expected = write_sentences(broker, "lines-2", 300)
    done = run(str(path), "--bootstrap-server", broker.bootstrap, "--workers", "2", "--once", "--name", "two")
    assert done.returncode == 0, done.stderr
    assert counts_of(broker, "counts-2") == (dict(expected), 2400)


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_killed_workers_lose_nothing(broker: Broker, tmp_path: Path, guarantee: str) -> None:
    lines, counts = f"lines-{guarantee}", f"counts-{guarantee}"
    path = topology_file(tmp_path, sentences=lines, counts=counts, exactly_once=guarantee)
    expected = write_sentences(broker, lines, 4000)
    processes = Processes(prepare(path, broker.bootstrap, workers=2, name=f"killed-{guarantee}"))
    over = threading.Event()
    killed: list[int] = []

    def kill_now_and_then() -> None:
        chance = random.Random(7)
        while len(killed) < 3 and not over.wait(chance.uniform(0.5, 1.0)):
            victim = chance.choice(processes.workers).pid
            if victim is not None:
                os.kill(victim, signal.SIGKILL)
                killed.append(victim)

    killer = threading.Thread(target=kill_now_and_then)
    killer.start()
    try:
        processes.run(once=True)
    finally:
        over.set()
        killer.join()
    assert killed
    # State makes both exact here: at least once writes it in transactions too.
    assert counts_of(broker, counts) == (dict(expected), 32_000)


def test_a_poison_record_goes_to_the_dead_letters_and_the_counts_stay_exact(
    broker: Broker, tmp_path: Path
) -> None:
    path = topology_file(tmp_path, sentences="lines-3", counts="counts-3")
    text = path.read_text().replace(
        '        for word in tup["value"].split():',
        '        if tup["value"] == "poison":\n'
        '            self.emit(["half"])\n'
        '            raise ValueError("cannot be split")\n'
        '        for word in tup["value"].split():',
    )
    path.write_text(text)
    expected = write_sentences(broker, "lines-3", 50)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("lines-3", "poison", key="bad")
    producer.flush(30)
    expected += write_sentences(broker, "lines-3", 50, seed=1)
    done = run(str(path), "--bootstrap-server", broker.bootstrap, "--no-spark", "--once", "--name", "three")
    assert done.returncode == 0, done.stderr
    assert counts_of(broker, "counts-3") == (dict(expected), 800)
    (letter,) = read_topic(broker.bootstrap, "three-dead-letters")
    assert letter.value() == b"poison"
    headers = dict(letter.headers() or [])
    assert b"cannot be split" in headers["reason"]
    assert headers["source"].startswith(b"lines-3-")


ACKED = """
from pathlib import Path
from millrace.topologies import Bolt, Grouping, Spout, Topology

EVENTS = Path({events!r})

class Numbers(Spout):
    outputs = ["number"]

    def open(self, conf, context):
        self._left = list(range(10))

    def next_tuple(self):
        if self._left:
            number = self._left.pop(0)
            self.emit([number], tup_id=number)

    def ack(self, tup_id):
        self._note("ack", tup_id)

    def fail(self, tup_id):
        self._note("fail", tup_id)

    def _note(self, outcome, tup_id):
        with EVENTS.open("a") as events:
            events.write(f"{{outcome}} {{tup_id}}\\n")

class Pass(Bolt):
    outputs = ["number"]

    def process(self, tup):
        self.emit([tup["number"]])

class Check(Bolt):
    def process(self, tup):
        if tup["number"] == 3:
            raise ValueError("three")

class Acked(Topology):
    numbers = Numbers.spec()
    relay = Pass.spec(inputs={{numbers: Grouping.ALL}}, par=3)
    check = Check.spec(inputs={{relay: Grouping.SHUFFLE}}, par=3)
"""


def test_acks_and_failures_of_other_workers_reach_the_spout(broker: Broker, tmp_path: Path) -> None:
    events = tmp_path / "events"
    path = tmp_path / "acked.py"
    path.write_text(ACKED.format(events=str(events)))
    processes = Processes(prepare(path, broker.bootstrap, workers=3, name="acked"))
    running = threading.Thread(target=processes.run)
    running.start()
    try:
        expected = {f"ack {number}" for number in range(10)} - {"ack 3"} | {"fail 3"}
        until(lambda: events.exists() and set(events.read_text().splitlines()) == expected, SECONDS)
    finally:
        processes.interrupt()
        running.join()
    assert len(events.read_text().splitlines()) == 10


# What is wrong is said


def test_a_missing_topic_is_named_before_anything_starts(broker: Broker, tmp_path: Path) -> None:
    path = topology_file(tmp_path, sentences="no-such-topic", counts="counts-4")
    done = run(str(path), "--bootstrap-server", broker.bootstrap, "--no-spark")
    assert done.returncode == 1
    assert "the topic no-such-topic does not exist; create it: millrace topics --create" in done.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("import no_such_module", "cannot be imported: ModuleNotFoundError"),
        ("x = 1", "has no topologies; subclass Topology in it"),
        (
            "from millrace.topologies import *\nclass T(Topology):\n    a = LogBolt.spec('t')\n",
            "has no spout",
        ),
    ],
)
def test_a_file_that_cannot_run_is_an_error_in_one_line(
    broker: Broker, tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(content)
    done = run(str(path), "--bootstrap-server", broker.bootstrap, "--no-spark")
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_worker_that_cannot_start_ends_the_run_with_its_error(broker: Broker, tmp_path: Path) -> None:
    path = topology_file(tmp_path, sentences="lines-5", counts="counts-5")
    write_sentences(broker, "lines-5", 1)
    path.write_text(
        path.read_text().replace(
            "class Split(Bolt):",
            "class Split(Bolt):\n"
            "    def prepare(self, conf, context):\n"
            "        raise OSError('the database is away')\n",
        )
    )
    done = run(str(path), "--bootstrap-server", broker.bootstrap, "--no-spark", "--name", "five")
    assert done.returncode == 1
    assert "failed 5 times in a row" in done.stderr
    assert "the database is away" in done.stderr
