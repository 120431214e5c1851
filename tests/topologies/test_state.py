"""State: undone by an abort, kept on disk, restored from a local copy, and asked for from outside."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.testing import Broker
from millrace.topologies import TopologyError
from millrace.topologies.running import prepare
from millrace.topologies.runtime import topics
from millrace.topologies.runtime.frames import Values
from millrace.topologies.runtime.processes import Processes
from millrace.topologies.runtime.restore import restore
from millrace.topologies.runtime.state import TaskState
from millrace.topologies.runtime.state_query import NoSuchState, StateQuery
from millrace.topologies.runtime.store import DiskStore, MemoryStore, Store, state_directory

from ..reading import read_topic


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = MemoryStore() if request.param == "memory" else DiskStore(tmp_path / "state", Values())
    yield opened
    opened.close()


def test_an_abort_undoes_values_that_were_changed_in_place(store: Store) -> None:
    state = TaskState(store)
    state["seen"] = ["a"]
    state.commit()
    seen = state["seen"]
    seen.append("b")
    state["seen"] = seen
    state.abort()
    assert state["seen"] == ["a"]


def test_a_key_that_comes_and_goes_between_two_commits_is_no_change(store: Store) -> None:
    state = TaskState(store)
    state["kept"] = 1
    state.commit()
    state["short"] = 1
    del state["short"]
    del state["kept"]
    assert state.changes() == [("kept", None, True)]
    assert dict(state) == {}


KEYS = st.sampled_from(["a", "b", 1, ("a", 2), b"x"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, st.integers(-(2**63), 2**64 - 1)),
        st.tuples(st.just("delete"), KEYS, st.none()),
        st.tuples(st.sampled_from(["commit", "abort", "reopen"]), st.none(), st.none()),
    ),
    max_size=30,
)


@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_a_store_on_disk_is_a_dictionary_with_commits(
    steps: list[tuple[str, object, object]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("state") / "state"
    state = TaskState(DiskStore(path, Values()))
    committed: dict[object, object] = {}
    model: dict[object, object] = {}
    for offset, (step, key, value) in enumerate(steps):
        match step:
            case "set":
                state[key] = model[key] = value
            case "delete":
                assert (state.pop(key, None)) == model.pop(key, None)
            case "commit":
                state.commit(offset)
                committed = dict(model)
            case "abort":
                state.abort()
                model = dict(committed)
            case "reopen":
                state.close()
                state = TaskState(DiskStore(path, Values()))
                model = dict(committed)
        assert dict(state) == model
        assert len(state) == len(model)
    state.close()


def test_a_store_that_another_one_has_taken_over_cannot_write_any_more(tmp_path: Path) -> None:
    old = DiskStore(tmp_path / "state", Values())
    old.write({"a": 1}, 5)
    new = DiskStore(tmp_path / "state", Values())
    assert (new.offset, new.get("a")) == (5, 1)
    with pytest.raises(TopologyError, match="another worker has taken the local state over"):
        old.write({"a": 2}, 6)
    assert DiskStore(tmp_path / "state", Values()).get("a") == 1


def test_a_directory_that_others_can_write_is_refused(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(TopologyError, match="others may write to"):
        state_directory(str(open_to_all))


# Over a log


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


COUNTING = """
from millrace.topologies import *

class Count(StatefulBolt):
    def process(self, tup):
        key = (tup["value"], len(tup["value"]))
        self.state[key] = self.state.get(key, 0) + 1
        self.state[tup["value"]] = self.state[key]

class Counting(Topology):
    guarantee = "exactly-once"
    lines = LogSpout.spec("counted-lines")
    count = Count.spec(inputs={lines: Grouping.fields("value")}, par=2)
"""


def write_lines(broker: Broker, lines: list[str]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for line in lines:
        producer.produce("counted-lines", line)
    assert producer.flush(30) == 0


def test_state_on_disk_is_reused_by_the_next_worker_and_answers_questions(
    broker: Broker, tmp_path: Path
) -> None:
    path = tmp_path / "counting.py"
    path.write_text(COUNTING)
    config = {"topology.state.store": "disk", "topology.state.dir": str(tmp_path / "state")}
    query = StateQuery(broker.bootstrap)
    for times in (1, 2):
        write_lines(broker, [f"line{number}" for number in range(40)])
        Processes(prepare(path, broker.bootstrap, name="counting", config=config)).run(once=True)
        assert query.get("counting", "count", "line7") == times
        assert query.get("counting", "count", '["line7", 5]') == times
    with pytest.raises(NoSuchState, match="has no key 'line99'"):
        query.get("counting", "count", "line99")
    with pytest.raises(NoSuchState, match="lines is no stateful bolt of a topology counting"):
        query.get("counting", "lines", "x")
    query.close()
    topic = topics.state_topic("counting", "count")
    config_of_consumer = {"bootstrap.servers": broker.bootstrap, "group.id": "restored"}
    unread = 0
    for index in (0, 1):
        (file,) = (tmp_path / "state").glob(f"{topic}-{index}-*.sqlite")
        state = TaskState(DiskStore(file, Values()))
        assert all(value == 2 for value in state.values())
        # The local copy is at the end of its changelog: the next worker has nothing to read.
        unread += restore(config_of_consumer, (topic, index), state, Values())
        state.close()
    assert unread == 0
    assert len(list(read_topic(broker.bootstrap, topic))) >= 160


def test_an_integer_that_is_too_large_is_named() -> None:
    with pytest.raises(TopologyError, match="more than 64 bits"):
        Values().encode({"count": 2**64})
