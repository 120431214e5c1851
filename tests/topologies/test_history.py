"""Runs over history: exact ranges, under a name of their own, with the clock of the records."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from millrace.testing import Broker
from millrace.topologies import TopologyError
from millrace.topologies.running import prepare, run_workers

from ..reading import read_topic

TICKING = """
from millrace.topologies import *

class Ticking(StatefulBolt):
    outputs = ["count"]
    config = {"topology.tick.tuple.freq.secs": 10}

    def process(self, tup):
        self.state["count"] = self.state.get("count", 0) + 1

    def process_tick(self, tup):
        self.emit([self.state.pop("count", 0)])

class PerTenSeconds(Topology):
    guarantee = "exactly-once"
    numbers = LogSpout.spec("numbers")
    ticking = Ticking.spec(inputs=[numbers])
    out = LogBolt.spec("per-ten-seconds", inputs=[ticking])
"""
START_MS = 1_790_000_000_000
TIMEOUT_SECONDS = 120


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"log.retention.ms": "-1"}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for second in range(100):
            producer.produce("numbers", str(second), timestamp=START_MS + second * 1000)
        assert producer.flush(30) == 0
        yield broker


def counts(broker: Broker) -> list[int]:
    return [
        json.loads(record.value() or b"")["count"]
        for record in read_topic(broker.bootstrap, "per-ten-seconds")
    ]


def test_ticks_of_a_run_over_history_follow_the_records_and_every_run_stands_alone(
    broker: Broker, tmp_path: Path
) -> None:
    path = tmp_path / "ticking.py"
    path.write_text(TICKING)
    for times in (1, 2):
        done = subprocess.run(
            [
                *(sys.executable, "-m", "millrace", "topology", "run", str(path), "--no-spark"),
                *("--bootstrap-server", broker.bootstrap),
                *("--from", f"@{START_MS + 20_000}", "--to", f"@{START_MS + 70_000}"),
            ],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert counts(broker) == [10] * 5 * times


def test_a_range_that_ends_before_it_begins_and_a_spout_without_an_end_are_refused(
    broker: Broker, tmp_path: Path
) -> None:
    path = tmp_path / "ticking.py"
    path.write_text(TICKING)
    with pytest.raises(TopologyError, match="must be earlier than --to"):
        prepare(path, broker.bootstrap, over=(2, 1))
    path.write_text(
        "from millrace.topologies import *\n"
        "class Own(Spout):\n    outputs = ['x']\n"
        "class Endless(Topology):\n    own = Own.spec()\n"
    )
    with pytest.raises(TopologyError, match="own is a spout of your own: only topics have a history"):
        prepare(path, broker.bootstrap, over=(1, 2))
    job = prepare(path, broker.bootstrap)
    with pytest.raises(TopologyError, match="endless reads no topic, so it has no end"):
        run_workers(job, spark=False, once=True)
