"""Tuple trees: done, failed, timed out, given up, acked late or twice."""

from typing import Any, ClassVar

from millrace.testing.topologies import LocalTopology
from millrace.topologies import (
    Bolt,
    Grouping,
    LogBolt,
    LogSpout,
    ReliableSpout,
    RichBolt,
    Spout,
    Topology,
    Tuple,
)


class Numbers(Spout):
    """Emits the numbers that the test puts in, with themselves as message ids."""

    outputs = ["number"]
    feed: ClassVar[list[int]] = []
    events: ClassVar[list[tuple[str, Any]]] = []

    def open(self, conf: dict[str, Any], context: Any) -> None:
        Numbers.feed, Numbers.events = [], []

    def next_tuple(self) -> None:
        if Numbers.feed:
            number = Numbers.feed.pop(0)
            self.emit([number], tup_id=number)

    def ack(self, tup_id: Any) -> None:
        Numbers.events.append(("ack", tup_id))

    def fail(self, tup_id: Any) -> None:
        Numbers.events.append(("fail", tup_id))


class Double(Bolt):
    """Emits every number twice; a negative one cannot be doubled."""

    outputs = ["number"]

    def process(self, tup: Tuple) -> None:
        if tup["number"] < 0:
            raise ValueError("a negative number")
        self.emit([tup["number"]])
        self.emit([tup["number"]])


class Keep(RichBolt):
    """Keeps every tuple, until the test acks or fails it."""

    kept: ClassVar[list[Tuple]] = []

    def prepare(self, conf: dict[str, Any], context: Any) -> None:
        Keep.kept = []

    def process(self, tup: Tuple) -> None:
        Keep.kept.append(tup)


class Tree(Topology):
    numbers = Numbers.spec()
    double = Double.spec(inputs=[numbers])
    keep = Keep.spec(inputs={double: Grouping.SHUFFLE}, par=2)


def keeper(local: LocalTopology) -> Keep:
    return local.instances("keep")[0]  # type: ignore[no-any-return]


def feed(local: LocalTopology, *numbers: int) -> None:
    Numbers.feed += numbers
    local.run()


def test_a_tree_is_done_when_its_last_tuple_is_acked() -> None:
    with LocalTopology(Tree) as local:
        feed(local, 1)
        first, second = Keep.kept
        keeper(local).ack(first)
        assert Numbers.events == []
        keeper(local).ack(second)
        assert Numbers.events == [("ack", 1)]
        assert len(local.engine.acker) == 0


def test_one_failed_branch_fails_the_tree_at_once_and_later_acks_change_nothing() -> None:
    with LocalTopology(Tree) as local:
        feed(local, 1)
        first, second = Keep.kept
        keeper(local).fail(first)
        assert Numbers.events == [("fail", 1)]
        keeper(local).ack(second)
        assert Numbers.events == [("fail", 1)]


def test_a_bolt_that_raises_fails_its_tuple_and_is_reported() -> None:
    with LocalTopology(Tree) as local:
        feed(local, -1, 2)
        assert Numbers.events == [("fail", -1)]
        assert "ValueError: a negative number" in local.errors("double")[0]
        assert [tup["number"] for tup in Keep.kept] == [2, 2]


def test_a_tree_that_takes_too_long_fails_and_its_late_acks_are_ignored() -> None:
    with LocalTopology(Tree) as local:
        feed(local, 1)
        local.advance(29)
        assert Numbers.events == []
        local.advance(1)
        assert Numbers.events == [("fail", 1)]
        for tup in Keep.kept:
            keeper(local).ack(tup)
        assert Numbers.events == [("fail", 1)]


def test_a_reset_time_out_begins_again() -> None:
    with LocalTopology(Tree) as local:
        feed(local, 1)
        local.advance(29)
        keeper(local).reset_timeout(Keep.kept[0])
        local.advance(29)
        assert Numbers.events == []
        local.advance(1)
        assert Numbers.events == [("fail", 1)]


def test_a_tuple_acked_twice_is_reported_and_does_no_harm() -> None:
    with LocalTopology(Tree) as local:
        feed(local, 1)
        first, second = Keep.kept
        keeper(local).ack(first)
        keeper(local).ack(first)
        assert Numbers.events == []
        keeper(local).ack(second)
        assert Numbers.events == [("ack", 1)]
        assert any("a second time" in error for error in local.errors("keep"))


def test_max_spout_pending_holds_the_spout_back() -> None:
    with LocalTopology(Tree, config={"topology.max.spout.pending": 2}) as local:
        feed(local, 1, 2, 3)
        assert Numbers.feed == [3]
        for tup in [tup for tup in Keep.kept if tup["number"] == 1]:
            keeper(local).ack(tup)
        local.run()
        assert Numbers.feed == []


def test_without_ackers_a_tuple_counts_as_done_when_it_is_emitted() -> None:
    with LocalTopology(Tree, config={"topology.acker.executors": 0}) as local:
        feed(local, 1)
        assert Numbers.events == [("ack", 1)]


class Joined(RichBolt):
    """Emits one tuple for each pair, anchored to both."""

    outputs = ["sum"]

    def prepare(self, conf: dict[str, Any], context: Any) -> None:
        self._first: Tuple | None = None

    def process(self, tup: Tuple) -> None:
        if self._first is None:
            self._first = tup
            return
        both = (self._first, tup)
        self._first = None
        self.emit([both[0]["number"] + both[1]["number"]], anchors=both)
        for anchor in both:
            self.ack(anchor)


class Join(Topology):
    numbers = Numbers.spec()
    joined = Joined.spec(inputs=[numbers])
    keep = Keep.spec(inputs=[joined])


def test_a_tuple_with_two_anchors_belongs_to_both_trees() -> None:
    with LocalTopology(Join) as local:
        feed(local, 1, 2)
        (joined,) = Keep.kept
        assert Numbers.events == []
        keeper(local).ack(joined)
        assert sorted(Numbers.events) == [("ack", 1), ("ack", 2)]
        feed(local, 3, 4)
        keeper(local).fail(Keep.kept[-1])
        assert sorted(Numbers.events[2:]) == [("fail", 3), ("fail", 4)]


# Replays


class Stubborn(ReliableSpout):
    outputs = ["number"]
    max_fails = 2

    def __init__(self) -> None:
        super().__init__()
        self._sent = False

    def next_tuple(self) -> None:
        if not self._sent:
            self._sent = True
            self.emit([-7], tup_id="seven")


class Poisoned(Topology):
    stubborn = Stubborn.spec()
    double = Double.spec(inputs=[stubborn])


def test_a_reliable_spout_emits_again_and_gives_up_in_the_end() -> None:
    with LocalTopology(Poisoned) as local:
        local.run()
        assert len(local.errors("double")) == 3
        ((component, values, reason),) = local.dead_letters
        assert (component, list(values), reason) == ("stubborn", [-7], "failed 3 times")
        assert local.instances("stubborn")[0].unacked_tuples == {}


class Parse(Bolt):
    outputs = ["number"]

    def process(self, tup: Tuple) -> None:
        self.emit([int(tup["value"])])


class FromLog(Topology):
    lines = LogSpout.spec("lines")
    parse = Parse.spec(inputs=[lines])
    out = LogBolt.spec("numbers", inputs=[parse])


def test_a_poison_record_goes_to_the_dead_letters_after_its_tries_and_the_others_flow() -> None:
    with LocalTopology(FromLog, config={"topology.max.fails": 2}) as local:
        local.send("lines", "1", "two", "3")
        assert local.values("numbers") == [{"number": 1}, {"number": 3}]
        assert len(local.errors("parse")) == 3
        (letter,) = local.dead_letters
        assert letter.values[5] == "two"
        assert "invalid literal" in letter.reason
