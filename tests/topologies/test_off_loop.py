"""Bolts outside the loop: async ones, bolts in threads, bolts that hang, and emits that are refused."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from confluent_kafka import Producer

from millrace.testing import Broker
from millrace.testing.topologies import LocalTopology
from millrace.topologies import (
    BatchingBolt,
    Bolt,
    Grouping,
    LogBolt,
    LogSpout,
    StatefulBolt,
    Topology,
    TopologyError,
    Tuple,
)
from millrace.topologies.running import prepare
from millrace.topologies.runtime import topics
from millrace.topologies.runtime.figures import decode_figures
from millrace.topologies.runtime.processes import Processes

from ..reading import read_topic


class Together(Bolt):
    """Ends no call before all of them have begun."""

    outputs = ["value"]
    begun: ClassVar[int] = 0
    all_begun: ClassVar[asyncio.Event]

    def prepare(self, conf: dict[str, Any], context: Any) -> None:
        Together.begun, Together.all_begun = 0, asyncio.Event()

    async def process(self, tup: Tuple) -> None:
        Together.begun += 1
        if Together.begun == 5:
            Together.all_begun.set()
        await asyncio.wait_for(Together.all_begun.wait(), 30)
        self.emit([tup["value"] + "!"])


class Overlapping(Topology):
    lines = LogSpout.spec("lines")
    together = Together.spec(inputs=[lines])
    out = LogBolt.spec("out", inputs=[together], value="value")


def test_calls_of_an_async_bolt_overlap_and_what_they_emit_goes_on() -> None:
    with LocalTopology(Overlapping) as local:
        for _ in range(5):
            local._append("lines", None, "a", 0)
        local.run()
        assert local.values("out") == ["a!"] * 5
        (task,) = local.plan.tasks["together"]
        stats = local.engine.bolts[task].stats.of(("lines", "default"))
        assert (stats.executed, stats.acked) == (5, 5)


class Blocking(StatefulBolt):
    """Meets the other task in a barrier: both must be in a call at the same time."""

    outputs = ["value", "count", "thread"]
    meeting: ClassVar[threading.Barrier]
    prepared: ClassVar[set[str]] = set()

    def prepare(self, conf: dict[str, Any], context: Any) -> None:
        self._thread = threading.current_thread().name

    def process(self, tup: Tuple) -> None:
        Blocking.meeting.wait(30)
        assert threading.current_thread().name == self._thread, "an instance belongs to one thread"
        count = self.state["count"] = self.state.get("count", 0) + 1
        self.emit([tup["value"], count, self._thread])


class InThreads(Topology):
    lines = LogSpout.spec("lines")
    blocking = Blocking.spec(inputs={lines: Grouping.SHUFFLE}, par=2, executors=2)
    out = LogBolt.spec("out", inputs=[blocking])


def test_tasks_in_threads_block_beside_each_other_and_keep_their_order() -> None:
    Blocking.meeting = threading.Barrier(2)
    with LocalTopology(InThreads) as local:
        for number in range(6):
            local._append("lines", None, str(number), 0)
        local.run()
        written = local.values("out")
        assert {record["thread"] for record in written} == {"blocking-0_0", "blocking-1_0"}
        for thread in ("blocking-0_0", "blocking-1_0"):
            mine = [record for record in written if record["thread"] == thread]
            assert [record["count"] for record in mine] == [1, 2, 3]
            assert [record["value"] for record in mine] == sorted(record["value"] for record in mine)


class Faulty(Bolt):
    """Does what its tuple says."""

    outputs = ["value"]

    def process(self, tup: Tuple) -> None:
        match tup["value"]:
            case "raise":
                raise ValueError("no luck")
            case "two":
                self.emit(["a", "b"])
            case "text":
                self.emit("a")
            case "thread":
                errors: list[BaseException] = []

                def emit() -> None:
                    try:
                        self.emit(["x"])
                    except TopologyError as error:
                        errors.append(error)

                stranger = threading.Thread(target=emit)
                stranger.start()
                stranger.join()
                raise errors[0]


class AsyncFaulty(Faulty):
    async def process(self, tup: Tuple) -> None:
        super().process(tup)


@pytest.mark.parametrize(
    ("bolt", "options"),
    [(Faulty, {}), (Faulty, {"executors": 1}), (AsyncFaulty, {})],
    ids=["in the loop", "in a thread", "async"],
)
@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("raise", "ValueError: no luck"),
        ("two", "emits 2 values to the stream default, which has 1 fields: value"),
        ("text", "emits 'a' to the stream default; emit a list"),
        ("thread", "hand the values over in a queue"),
    ],
)
def test_what_a_bolt_must_not_do_is_an_error_with_the_way_out_and_its_record_is_given_up(
    bolt: type[Bolt], options: dict[str, Any], line: str, error: str
) -> None:
    class Wrong(Topology):
        lines = LogSpout.spec("lines")
        faulty = bolt.spec(inputs=[lines], **options)

    with LocalTopology(Wrong, config={"topology.max.fails": 1}) as local:
        local.send("lines", line, "fine")
        assert error in local.errors("faulty")[0]
        assert [letter.values[5] for letter in local.dead_letters] == [line]


def test_an_emit_after_the_end_is_refused() -> None:
    with LocalTopology(Overlapping) as local:
        bolt = local.instances("together")[0]
    with pytest.raises(TopologyError, match="while it is not running"):
        bolt.emit(["late"])


class Batches(BatchingBolt):
    def process_batch(self, key: Any, tups: list[Tuple]) -> None: ...


class AsyncState(StatefulBolt):
    async def process(self, tup: Tuple) -> None: ...


@pytest.mark.parametrize(
    ("bolt", "options", "message"),
    [
        (Batches, {"executors": 2}, "holds tuples, so it runs in the worker's loop"),
        (Together, {"executors": 2}, "needs no threads"),
        (AsyncState, {}, "would overtake each other"),
    ],
)
def test_combinations_that_cannot_work_are_refused_when_the_topology_is_built(
    bolt: type[Bolt], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TopologyError, match=message):

        class Wrong(Topology):
            lines = LogSpout.spec("lines")
            wrong = bolt.spec(inputs=[lines], **options)


# Hanging

HANGING = """
import time
from pathlib import Path
from millrace.topologies import Bolt, LogBolt, LogSpout, Topology

class Stuck(Bolt):
    outputs = ["value"]

    def process(self, tup):
        mark = Path({mark!r})
        if tup["value"] == "slow" and not mark.exists():
            mark.touch()
            time.sleep(600)
        self.emit([tup["value"]])

class Hanging(Topology):
    guarantee = "exactly-once"
    lines = LogSpout.spec("hanging-lines")
    stuck = Stuck.spec(inputs=[lines]{options})
    out = LogBolt.spec("hanging-out", inputs=[stuck], value="value")
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.mark.parametrize(
    "options",
    [
        pytest.param("", id="in the loop"),
        pytest.param(", executors=1", id="in a thread", marks=pytest.mark.proof),
    ],
)
def test_a_bolt_that_hangs_is_named_and_its_worker_is_restarted(
    broker: Broker, tmp_path: Path, options: str
) -> None:
    name = f"hanging{len(options)}"
    path = tmp_path / "hanging.py"
    text = HANGING.format(mark=str(tmp_path / "mark"), options=options)
    path.write_text(text.replace("hanging-", f"{name}-"))
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for line in ("a", "slow", "b"):
        producer.produce(f"{name}-lines", line)
    assert producer.flush(30) == 0
    config = {"topology.hang.timeout.secs": 1}
    Processes(prepare(path, broker.bootstrap, name=name, config=config)).run(once=True)
    assert sorted(record.value() or b"" for record in read_topic(broker.bootstrap, f"{name}-out")) == [
        b"a",
        b"b",
        b"slow",
    ]
    errors = [
        error
        for record in read_topic(broker.bootstrap, topics.METRICS)
        if (figures := decode_figures(record.value() or b"")).topology == name
        for error in figures.errors
    ]
    assert [error.component for error in errors] == ["stuck"]
    assert "hangs for more than 1 s on Tuple(lines/default" in errors[0].error
