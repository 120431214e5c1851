"""Topologies that cannot work are refused when their class is made, with the remedy."""

import re
import threading
from typing import Any, ClassVar

import pytest

from millrace.testing.topologies import LocalTopology
from millrace.topologies import (
    BatchingBolt,
    Bolt,
    Grouping,
    LogBolt,
    LogSpout,
    Spout,
    StatefulBolt,
    Stream,
    Topology,
    TopologyError,
    Tuple,
)


class Words(Bolt):
    outputs = ["word"]

    def process(self, tup: Tuple) -> None:
        for word in tup["value"].split():
            self.emit([word])


class Count(StatefulBolt):
    outputs = ["word", "count"]

    def process(self, tup: Tuple) -> None:
        count = self.state[tup["word"]] = self.state.get(tup["word"], 0) + 1
        self.emit([tup["word"], count])


class WordCount(Topology):
    sentences = LogSpout.spec("sentences")
    split = Words.spec(inputs=[sentences], par=2)
    count = Count.spec(inputs={split: Grouping.fields("word")}, par=4)
    out = LogBolt.spec("counts", inputs=[count], key="word")


def test_words_are_counted() -> None:
    with LocalTopology(WordCount) as local:
        local.send("sentences", "the cow jumped over the moon", "the moon")
        assert local.state("count") == {"the": 3, "cow": 1, "jumped": 1, "over": 1, "moon": 2}
        newest = {record["word"]: record["count"] for record in local.values("counts")}
        assert newest == local.state("count")
        assert {record.key for record in local.written} == {word.encode() for word in newest}


def test_the_plan_numbers_tasks_and_names_the_topology() -> None:
    plan = WordCount.plan()
    assert plan.name == "word-count"
    assert [len(plan.tasks[name]) for name in ("sentences", "split", "count", "out")] == [1, 2, 4, 1]
    numbers = [task for tasks in plan.tasks.values() for task in tasks]
    assert sorted(numbers) == list(range(1, 9))
    assert next(iter(plan.components)) == "sentences"


LINES = LogSpout.spec("lines", name="lines")


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"words": Words.spec(inputs=[LINES])}, "has no spout"),
        ({"lines": LINES, "words": Words.spec()}, "the bolt words has no inputs"),
        (
            {"lines": LINES, "count": Count.spec(inputs={LINES: Grouping.fields("word")})},
            "groups by the field 'word', but lines, stream default, has topic, partition, offset",
        ),
        (
            {"lines": LINES, "words": Words.spec(inputs=[LINES["errors"]])},
            "reads the stream 'errors' of lines, which declares default",
        ),
        (
            {"lines": LINES, "words": Words.spec(inputs=[LogSpout.spec("other")])},
            "which is not a component of this topology",
        ),
        (
            {"lines": LINES, "words": Words.spec(inputs={LINES: Grouping.DIRECT})},
            "does not declare default as direct",
        ),
        ({"lines": LINES, "guarantee": "twice"}, "the guarantee 'twice' is not one of"),
        ({"lines": LINES, "config": {"topology.worker": 2}}, r"did you mean topology\.workers"),
        ({"lines": LINES, "config": {"topology.workers": "two"}}, "cannot be 'two'"),
        ({"lines": LINES, "config": {"topology.tick.tuple.freq.secs": 2}}, "is a setting of components"),
        (
            {"lines": LogSpout.spec("lines", format="avro")},
            "'avro' is not one of text, bytes, json",
        ),
        ({"lines": LINES, "out": LogBolt.spec("out", inputs=[LINES], key="word")}, "writes the field 'word'"),
    ],
)
def test_what_cannot_work_is_refused(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        type("Wrong", (Topology,), attributes)


def test_a_cycle_is_named() -> None:
    first = Words.spec(inputs=[LINES], name="first")
    second = Words.spec(inputs=[first], name="second")
    first.inputs = {LINES["default"]: Grouping.SHUFFLE, second["default"]: Grouping.SHUFFLE}
    with pytest.raises(TopologyError, match="has a cycle: first -> second -> first"):
        type("Round", (Topology,), {"lines": LINES, "first": first, "second": second})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Words.spec(inputs=[LINES], par=0), "par must be a whole number from 1 on"),
        (lambda: Words.spec(inputs=[LINES], par=3, tasks=2), "3 executors cannot share 2 tasks"),
        (lambda: Words.spec(inputs=["lines"]), "an input must be the spec of another component"),
        (lambda: Words.spec(inputs={LINES: "fields"}), "needs a Grouping, not 'fields'"),
        (Grouping.fields, "takes the names of fields"),
        (lambda: Grouping.custom(object()), "needs a method prepare"),
        (lambda: Stream("word"), "must be a list of names, not the text 'word'"),
        (lambda: Stream(["a", "a"]), "declares the field 'a' twice"),
    ],
)
def test_wrong_parts_are_refused(make: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=re.escape(message)):
        make()


# Components that do what they must not


class Misbehaving(Bolt):
    outputs = ["a", "b"]
    action: ClassVar[Any] = None

    def process(self, tup: Tuple) -> None:
        Misbehaving.action(self, tup)


def in_another_thread(bolt: Bolt, tup: Tuple) -> None:
    errors: list[BaseException] = []

    def emit() -> None:
        try:
            bolt.emit([1, 2])
        except TopologyError as error:
            errors.append(error)

    thread = threading.Thread(target=emit)
    thread.start()
    thread.join()
    raise errors[0]


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda bolt, tup: bolt.emit([1]), "emits 1 values to the stream default, which has 2 fields: a, b"),
        (lambda bolt, tup: bolt.emit([1, 2], stream="c"), "emits to the stream 'c', but declares default"),
        (lambda bolt, tup: tup["nothing"], "has no field 'nothing'; its fields are topic, partition"),
        (in_another_thread, "emits from another thread"),
    ],
)
def test_misbehaviour_is_an_error_of_the_component_and_stops_nothing(action: Any, message: str) -> None:
    class Bad(Topology):
        lines = LogSpout.spec("lines")
        bad = Misbehaving.spec(inputs=[lines])
        out = LogBolt.spec("out", inputs=[bad])

    Misbehaving.action = staticmethod(action)
    with LocalTopology(Bad, config={"topology.max.fails": 0}) as local:
        local.send("lines", "x")
        assert message in local.errors("bad")[0]
        Misbehaving.action = staticmethod(lambda bolt, tup: bolt.emit([1, 2]))
        local.send("lines", "y")
        assert local.values("out") == [{"a": 1, "b": 2}]
        bolt = local.instances("bad")[0]
    with pytest.raises(TopologyError, match="while it is not running"):
        bolt.emit([1, 2])


# Ticks and batches


class Ticking(Bolt):
    outputs = ["ticks"]
    config = {"topology.tick.tuple.freq.secs": 10}

    def prepare(self, conf: dict[str, Any], context: Any) -> None:
        self.ticks = 0

    def process(self, tup: Tuple) -> None:
        pass

    def process_tick(self, tup: Tuple) -> None:
        assert tup.is_tick
        self.ticks += 1
        self.emit([self.ticks])


class Batches(BatchingBolt):
    outputs = ["key", "size"]

    def group_key(self, tup: Tuple) -> Any:
        return tup["key"]

    def process_batch(self, key: Any, tups: list[Tuple]) -> None:
        self.emit([key, len(tups)])


class Timed(Topology):
    lines = LogSpout.spec("lines")
    ticking = Ticking.spec(inputs=[lines], par=2)
    out = LogBolt.spec("ticks", inputs=[ticking])
    batches = Batches.spec(inputs=[lines])
    sizes = LogBolt.spec("sizes", inputs=[batches], key="key")


def test_every_task_of_a_component_ticks_at_its_own_interval() -> None:
    with LocalTopology(Timed) as local:
        local.advance(25)
        assert local.values("ticks") == [{"ticks": 1}, {"ticks": 1}, {"ticks": 2}, {"ticks": 2}]


def test_a_batching_bolt_processes_groups_at_its_ticks() -> None:
    with LocalTopology(Timed) as local:
        local.send("lines", "x", "y", key="one")
        local.send("lines", "z", key="two")
        assert local.values("sizes") == []
        local.advance(1)
        assert local.values("sizes") == [{"key": "one", "size": 2}, {"key": "two", "size": 1}]


class Endless(Spout):
    outputs = ["n"]

    def next_tuple(self) -> None:
        self.emit([1])


def test_a_spout_that_never_stops_does_not_hang_a_test() -> None:
    class Forever(Topology):
        endless = Endless.spec()

    with LocalTopology(Forever) as local, pytest.raises(AssertionError, match="does a spout never stop"):
        local.run()


def test_a_pattern_of_topics_leaves_out_internal_ones() -> None:
    spout = LogSpout(re.compile(".*"))
    internal = ["__consumer_offsets", "__topology_metrics", "_topology.word-count.control"]
    assert spout.topics_among(["orders", *internal, "_schemas"]) == ["orders", "_schemas"]
