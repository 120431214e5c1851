"""Components in other languages, and values of the user's own classes."""

import logging
import shutil
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from millrace.testing.topologies import LocalTopology
from millrace.topologies import (
    Bolt,
    LogBolt,
    LogSpout,
    ShellBolt,
    ShellSpout,
    Topology,
    TopologyError,
    Tuple,
    register_serializer,
)
from millrace.topologies.runtime.frames import Frames, Sent, Values

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_a_bolt_in_javascript_splits_and_fails_what_it_cannot_split() -> None:
    class Words(Topology):
        lines = LogSpout.spec("lines")
        split = ShellBolt.spec("node", "programs/split.js", inputs=[lines], outputs=["word"], par=2)
        out = LogBolt.spec("words", inputs=[split], value="word")

    config = {"topology.max.fails": 1, "topology.shellbolt.max.pending": 2}
    with LocalTopology(Words, config=config) as local:
        local.send("lines", *["a b c"] * 20, "poison", "d")
        assert sorted(local.values("words")) == sorted(["a", "b", "c"] * 20 + ["d"])
        assert [letter.values[5] for letter in local.dead_letters] == ["poison"]
        assert "cannot be split" in local.errors("split")
        acked = sum(
            local.engine.bolts[task].stats.of(("lines", "default")).acked
            for task in local.plan.tasks["split"]
        )
        assert acked == 21


class Check(Bolt):
    outputs = ["number"]

    def process(self, tup: Tuple) -> None:
        if tup["number"] == 2:
            raise ValueError("two")
        self.emit([tup["number"]])


def test_a_spout_in_another_language_hears_of_acks_and_failures(caplog: pytest.LogCaptureFixture) -> None:
    class Numbers(Topology):
        numbers = ShellSpout.spec(sys.executable, str(PROGRAMS / "numbers.py"), outputs=["number"])
        check = Check.spec(inputs=[numbers])
        out = LogBolt.spec("out", inputs=[check])

    caplog.set_level(logging.INFO)
    with LocalTopology(Numbers) as local:
        local.run()
        assert [record["number"] for record in local.values("out")] == [1, 3, 20]
    assert {"acked 1", "acked 3", "acked 20"} <= {record.message for record in caplog.records}


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ((sys.executable, str(PROGRAMS / "chatty.py")), "printed 'debugging here', which is no message"),
        ((sys.executable, "-c", "import sys; sys.exit(3)"), "ended with 3"),
        (("no-such-program",), "no-such-program cannot be run"),
    ],
)
def test_a_program_that_does_not_speak_the_protocol_is_named(command: tuple[str, ...], message: str) -> None:
    class Wrong(Topology):
        lines = LogSpout.spec("lines")
        wrong = ShellBolt.spec(*command, inputs=[lines])

    with pytest.raises(TopologyError, match=message), LocalTopology(Wrong) as local:
        local.send("lines", "hello")


def test_a_shell_bolt_without_a_program_is_refused() -> None:
    with pytest.raises(TopologyError, match="empty needs the program to run"):

        class Wrong(Topology):
            lines = LogSpout.spec("lines")
            empty = ShellBolt.spec(inputs=[lines])


# Values


@dataclass(frozen=True)
class Point:
    x: int
    y: int


class Opaque:
    pass


def test_a_registered_class_comes_back_as_itself_and_others_are_refused_with_two_ways_out() -> None:
    register_serializer(Point, encode=lambda point: [point.x, point.y], decode=lambda pair: Point(*pair))
    frames = Frames(b"key", Values())
    (sent,) = frames.decode(frames.encode([Sent("a", "default", 1, [{"at": Point(1, 2)}], None)]))
    assert sent.values == [{"at": Point(1, 2)}]
    with pytest.raises(TopologyError, match=r"register_serializer\(Opaque, .*topology.allow.pickle"):
        frames.encode([Sent("a", "default", 1, [Opaque()], None)])


class Locked(Bolt):
    def __init__(self, size: int, guard: Any = None) -> None:
        self.guard = guard


def test_an_argument_that_cannot_be_given_to_each_task_is_named() -> None:
    class Wrong(Topology):
        lines = LogSpout.spec("lines")
        locked = Locked.spec(3, guard=threading.Lock(), inputs=[lines])

    with pytest.raises(TopologyError, match=r"locked: the argument guard of its spec, a lock, .*in prepare"):
        LocalTopology(Wrong)
