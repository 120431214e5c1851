"""Figures of workers in the metrics topic: exact counts, times and errors."""

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from millrace.testing import Broker
from millrace.topologies.running import prepare
from millrace.topologies.runtime import topics
from millrace.topologies.runtime.figures import WorkerFigures, decode_figures
from millrace.topologies.runtime.processes import Processes

from ..reading import read_topic
from ..waiting import until

TOPOLOGY = """
from millrace.topologies import Bolt, Grouping, LogBolt, LogSpout, Topology

class Split(Bolt):
    outputs = ["word"]

    def process(self, tup):
        if tup["value"] == "poison":
            raise ValueError("cannot be split")
        for word in tup["value"].split():
            self.emit([word])
        self.report_metric("lines", 1)

class Measured(Topology):
    lines = LogSpout.spec("lines")
    split = Split.spec(inputs=[lines], par=2)
    out = LogBolt.spec("words", inputs={split: Grouping.fields("word")}, value="word")
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def figures_of(broker: Broker, topology: str) -> list[WorkerFigures]:
    records = [
        decode_figures(record.value() or b"") for record in read_topic(broker.bootstrap, topics.METRICS)
    ]
    return [record for record in records if record.topology == topology]


def write_lines(broker: Broker, lines: list[str]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for line in lines:
        producer.produce("lines", line)
    assert producer.flush(30) == 0


def totals_of(records: list[WorkerFigures]) -> Counter[str]:
    totals: Counter[str] = Counter()
    for record in records:
        for task in record.tasks:
            name = task.component
            totals[f"{name} emitted"] += sum(task.emitted.values())
            totals[f"{name} transferred"] += sum(task.transferred.values())
            totals[f"{name} acked"] += task.acked
            totals[f"{name} failed"] += task.failed
            totals["lines split"] += int(task.custom.get("lines", 0))
            for given in task.inputs:
                totals[f"{name} executed {given.component}"] += given.executed
                totals[f"{name} acked {given.component}"] += given.acked
                totals[f"{name} failed {given.component}"] += given.failed
                assert given.execute_ms > 0
                assert bool(given.process_ms) == bool(given.acked)
    return totals


def test_counts_times_and_errors_of_every_task_are_in_the_metrics_topic(
    broker: Broker, tmp_path: Path
) -> None:
    path = tmp_path / "measured.py"
    path.write_text(TOPOLOGY)
    write_lines(broker, ["a b c"] * 50)
    Processes(prepare(path, broker.bootstrap, workers=2, name="measured")).run(once=True)
    records = figures_of(broker, "measured")
    assert {record.worker for record in records} == {0, 1}
    assert {task for record in records for task in record.hosted} == {1, 2, 3, 4}
    assert not any(record.errors for record in records)
    totals = totals_of(records)
    expected = {
        "lines emitted": 50,
        "lines transferred": 50,
        "lines acked": 50,
        "lines failed": 0,
        "split executed lines": 50,
        "split acked lines": 50,
        "split failed lines": 0,
        "split emitted": 150,
        "split transferred": 150,
        "out executed split": 150,
        "lines split": 50,
    }
    assert {name: totals[name] for name in expected} == expected


def test_failures_are_counted_and_their_error_is_kept(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "poisoned.py"
    path.write_text(TOPOLOGY.replace('"lines")', '"poisoned-lines")'))
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for line in ("a b", "poison", "c d"):
        producer.produce("poisoned-lines", line)
    assert producer.flush(30) == 0
    job = prepare(path, broker.bootstrap, name="poisoned", config={"topology.max.fails": 1})
    Processes(job).run(once=True)
    records = figures_of(broker, "poisoned")
    totals = totals_of(records)
    # The poison line is delivered twice before it is given up.
    assert totals["split failed lines"] == totals["lines failed"] == 2
    assert totals["lines acked"] == 2
    errors = [error for record in records for error in record.errors]
    assert {(error.component, error.worker, bool(error.host)) for error in errors} == {("split", 0, True)}
    assert "ValueError: cannot be split" in errors[0].error


def test_an_error_that_ends_a_worker_is_in_the_metrics_topic(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text(
        TOPOLOGY.replace(
            "    def process(self, tup):",
            "    def prepare(self, conf, context):\n"
            "        raise OSError('the database is away')\n\n"
            "    def process(self, tup):",
        )
    )
    write_lines(broker, ["a"])
    processes = Processes(prepare(path, broker.bootstrap, workers=1, name="broken"))
    running = threading.Thread(target=processes.run, daemon=True)
    running.start()
    try:
        until(lambda: any(record.errors for record in figures_of(broker, "broken")))
    finally:
        processes.interrupt()
        running.join()
    (error, *_) = [error for record in figures_of(broker, "broken") for error in record.errors]
    assert "the database is away" in error.error
    assert error.component is None
