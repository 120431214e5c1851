"""Windows and batches in exactly-once mode: held tuples survive kills, and failures are undone whole."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from millrace.testing import Broker
from millrace.topologies import LogSpout, Spout, Topology, TopologyError
from millrace.topologies.running import prepare
from millrace.topologies.runtime.processes import Processes
from millrace.topologies.runtime.worker import Worker

from ..reading import read_topic
from ..waiting import until

HOLDING = """
from pathlib import Path
from millrace.topologies import *

class Sums(WindowedBolt):
    outputs = ["end", "sum"]
    window = Window.tumbling(Duration(10), timestamp="timestamp", watermark_seconds=0.05)

    def process_window(self, window):
        self.emit([window.end_timestamp - {base}, sum(int(tup["value"]) for tup in window)])
        if {fails} and window.end_timestamp == {base} + 50_000:
            raise ValueError("half done")

class Batches(BatchingBolt):
    outputs = ["values"]
    config = {{"topology.tick.tuple.freq.secs": 0.2}}

    def process_batch(self, key, tups):
        self.emit([[int(tup["value"]) for tup in tups]])
        mark = Path({mark!r})
        if not mark.exists():
            mark.touch()
            raise ValueError("the first time")

class Holding(Topology):
    guarantee = "exactly-once"
    numbers = LogSpout.spec("{name}-in")
    sums = Sums.spec(inputs=[numbers])
    batches = Batches.spec(inputs=[numbers])
    out = LogBolt.spec("{name}-sums", inputs=[sums])
    kept = LogBolt.spec("{name}-batches", inputs=[batches])
"""

# Event time begins at a full window; today, so that retention keeps the records.
BASE_MS = int(time.time()) // 10 * 10_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def values_of(broker: Broker, topic: str) -> list[Any]:
    return [json.loads(record.value() or b"null") for record in read_topic(broker.bootstrap, topic)]


class Running:
    """A topology of one worker, in the background."""

    def __init__(self, path: Path, broker: Broker, name: str, **config: Any) -> None:
        self.processes = Processes(
            prepare(path, broker.bootstrap, name=name, config={f"topology.{k}": v for k, v in config.items()})
        )
        self._thread = threading.Thread(target=self.processes.run, daemon=True)

    def __enter__(self) -> "Running":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.processes.interrupt()
        self._thread.join()

    def kill(self) -> None:
        (worker,) = self.processes.workers
        killed = worker.pid
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        until(lambda: worker.pid not in (None, killed))


def holding_file(directory: Path, name: str, *, fails: bool = False) -> Path:
    path = directory / f"{name}.py"
    path.write_text(HOLDING.format(name=name, mark=str(directory / "mark"), fails=fails, base=BASE_MS))
    return path


def write(broker: Broker, topic: str, numbers: range) -> None:
    """A number for each second of event time."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in numbers:
        producer.produce(topic, str(number), timestamp=BASE_MS + (number + 1) * 1000, partition=0)
    assert producer.flush(30) == 0


def test_windows_and_batches_are_exact_although_their_worker_is_killed_and_a_batch_fails(
    broker: Broker, tmp_path: Path
) -> None:
    name = "held"
    path = holding_file(tmp_path, name)
    write(broker, f"{name}-in", range(25))
    with Running(path, broker, name) as running:
        for part in range(4):
            # Each part ends in the middle of a window, whose tuples are held while the worker is killed.
            if part:
                write(broker, f"{name}-in", range(part * 25, part * 25 + 25))
            ended = (part * 25 + 25) // 10
            until(lambda ended=ended: len(values_of(broker, f"{name}-sums")) >= ended)
            if part < 3:
                running.kill()
        until(lambda: sum(len(row["values"]) for row in values_of(broker, f"{name}-batches")) >= 100)
    sums = values_of(broker, f"{name}-sums")
    assert sums == [{"end": end * 1000, "sum": sum(range(end - 10, end))} for end in range(10, 101, 10)]
    batched = [number for row in values_of(broker, f"{name}-batches") for number in row["values"]]
    assert sorted(batched) == list(range(100))


def test_a_window_that_always_fails_is_given_up_whole_and_the_others_are_exact(
    broker: Broker, tmp_path: Path
) -> None:
    name = "failing"
    (tmp_path / "mark").touch()
    write(broker, f"{name}-in", range(75))
    with Running(holding_file(tmp_path, name, fails=True), broker, name, **{"max.fails": 1}):
        until(lambda: len(values_of(broker, f"{name}-sums")) >= 6)
        until(lambda: len(values_of(broker, f"{name}-dead-letters")) >= 10)
    ends = [row["end"] for row in values_of(broker, f"{name}-sums")]
    assert ends == [10_000, 20_000, 30_000, 40_000, 60_000, 70_000]
    assert [letter["value"] for letter in values_of(broker, f"{name}-dead-letters")] == [
        str(number) for number in range(40, 50)
    ]


KEEPER = """
from millrace.topologies import *

class Keeper(RichBolt):
    def process(self, tup):
        self.kept = [tup]

class Kept(Topology):
    guarantee = "exactly-once"
    lines = LogSpout.spec("kept-lines")
    keeper = Keeper.spec(inputs=[lines])
"""


def test_a_rich_bolt_that_holds_tuples_is_refused_by_name(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "kept.py"
    path.write_text(KEEPER)
    write(broker, "kept-lines", range(1))
    worker = Worker(prepare(path, broker.bootstrap, name="kept").worker_job(0))
    with pytest.raises(TopologyError, match="kept is exactly-once, but keeper keeps tuples without acking"):
        worker.run()


def test_a_spout_of_the_users_own_is_refused_in_exactly_once_mode() -> None:
    class Own(Spout):
        outputs = ["number"]

    with pytest.raises(TopologyError, match="numbers, a spout of your own, cannot go back to a commit"):

        class Wrong(Topology):
            guarantee = "exactly-once"
            lines = LogSpout.spec("lines")
            numbers = Own.spec()
