"""Which tasks receive a tuple, for every grouping."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.testing.topologies import LocalTopology
from millrace.topologies import Bolt, Grouping, LogSpout, Stream, Topology, TopologyError, Tuple
from millrace.topologies.runtime.hashing import stable_hash

WORDS = [f"word {number % 25}" for number in range(400)]


class Receiver(Bolt):
    """Remembers which task received which value."""

    received: ClassVar[dict[int, list[Any]]] = {}

    def process(self, tup: Tuple) -> None:
        self.received.setdefault(self.context.task, []).append(tup["value"])


def receive(grouping: Grouping, par: int = 4, values: Sequence[str] = WORDS) -> dict[int, list[Any]]:
    """The values that each task of a bolt receives, by its index among the bolt's tasks."""
    Receiver.received = {}

    class Grouped(Topology):
        lines = LogSpout.spec("lines")
        receiver = Receiver.spec(inputs={lines: grouping}, par=par)

    with LocalTopology(Grouped) as local:
        local.send("lines", *values)
        tasks = local.plan.tasks["receiver"]
    return {tasks.index(task): received for task, received in Receiver.received.items()}


def test_shuffle_gives_every_task_as_many() -> None:
    received = receive(Grouping.SHUFFLE)
    assert sorted(map(len, received.values())) == [100] * 4


def test_fields_sends_equal_values_to_one_task() -> None:
    received = receive(Grouping.fields("value"))
    owners = Counter(word for values in received.values() for word in set(values))
    assert set(owners.values()) == {1}
    assert len(received) == 4
    assert sum(map(len, received.values())) == len(WORDS)


def test_all_gives_every_task_everything() -> None:
    assert receive(Grouping.ALL) == dict.fromkeys(range(4), WORDS)


def test_global_uses_the_lowest_task() -> None:
    assert receive(Grouping.GLOBAL) == {0: WORDS}


@pytest.mark.parametrize("grouping", [Grouping.NONE, Grouping.LOCAL_OR_SHUFFLE])
def test_groupings_that_prefer_the_own_worker_lose_nothing(grouping: Grouping) -> None:
    assert sum(map(len, receive(grouping).values())) == len(WORDS)


def test_partial_key_splits_a_hot_key_over_two_tasks() -> None:
    received = receive(Grouping.partial_key("value"), par=8, values=["hot"] * 100)
    assert sorted(map(len, received.values())) in ([50, 50], [100])
    spread = receive(Grouping.partial_key("value"), par=8)
    tasks_of = Counter(word for values in spread.values() for word in set(values))
    assert max(tasks_of.values()) <= 2


class EveryOther:
    """Sends to the first task, and odd values also to the last."""

    def prepare(self, component: str, stream: str, tasks: Sequence[int]) -> None:
        self._tasks = tasks

    def choose_tasks(self, task: int, values: Sequence[Any]) -> list[int]:
        return [self._tasks[0], self._tasks[-1]] if values[5] == "odd" else [self._tasks[0]]


def test_a_custom_grouping_chooses_one_or_several_tasks() -> None:
    received = receive(Grouping.custom(EveryOther()), values=["even", "odd", "even"])
    assert received == {0: ["even", "odd", "even"], 3: ["odd"]}


class Stranger(EveryOther):
    def choose_tasks(self, task: int, values: Sequence[Any]) -> list[int]:
        return [999]


def test_a_custom_grouping_that_chooses_a_stranger_is_an_error_of_the_emitter() -> None:
    with pytest.raises(TopologyError, match="chose task 999"):
        receive(Grouping.custom(Stranger()), values=["one"])


class Dispatcher(Bolt):
    """Names the task that receives each value."""

    outputs = [Stream(["value"], name="direct", direct=True)]

    def process(self, tup: Tuple) -> None:
        tasks = self.context.tasks["receiver"]
        self.emit([tup["value"]], stream="direct", direct_task=tasks[int(tup["value"])])


def test_direct_goes_to_the_named_task() -> None:
    Receiver.received = {}

    class Directed(Topology):
        lines = LogSpout.spec("lines")
        dispatcher = Dispatcher.spec(inputs=[lines])
        receiver = Receiver.spec(inputs={dispatcher["direct"]: Grouping.DIRECT}, par=3)

    with LocalTopology(Directed) as local:
        local.send("lines", "2", "0", "2")
        first, _, last = local.plan.tasks["receiver"]
    assert Receiver.received == {last: ["2", "2"], first: ["0"]}


# The hash


@given(st.recursive(st.none() | st.text() | st.integers() | st.binary(), st.lists, max_leaves=5))
def test_equal_values_hash_alike(value: Any) -> None:
    assert stable_hash(value) == stable_hash(value)
    if isinstance(value, list):
        assert stable_hash(value) == stable_hash(tuple(value))


def test_numbers_that_are_equal_hash_alike_and_orders_of_keys_do_not_matter() -> None:
    assert stable_hash(1) == stable_hash(1.0) == stable_hash(True)
    assert stable_hash({"a": 1, "b": 2}) == stable_hash({"b": 2, "a": 1})
    assert stable_hash(["ab", "c"]) != stable_hash(["a", "bc"])
    assert stable_hash("1") != stable_hash(1)


def test_the_hash_is_the_same_in_every_process() -> None:
    assert stable_hash("word") == 2_598_749_967


def test_a_value_that_cannot_be_grouped_by_is_named() -> None:
    with pytest.raises(TopologyError, match="type object"):
        stable_hash(object())
