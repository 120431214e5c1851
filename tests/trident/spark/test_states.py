"""States that batches update and query, and windows that span batches."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from millrace.trident import (
    Count,
    MapGet,
    Max,
    ReducerAggregator,
    SnapshotGet,
    Split,
    StateUpdater,
    Sum,
    TridentError,
    sliding,
    state,
    tumbling,
)
from millrace.trident.spark.window_step import slide_by_time

from ..conftest import STORES
from .conftest import OneBatch

NewBatch = Callable[[], OneBatch]


class Joined(ReducerAggregator):
    """All words, in order."""

    def init(self):
        return ""

    def reduce(self, current, tup) -> str:
        return f"{current}{tup[0]}"


class KeepPrices(StateUpdater):
    def update_state(self, state, tuples, collector):
        state.multi_put([[tup["word"]] for tup in tuples], [tup["price"] for tup in tuples])
        for tup in tuples:
            collector.emit([tup["word"]])


@pytest.mark.parametrize("store", STORES)
def test_new_values_follow_the_batches_and_repeats_change_nothing(
    store: str, one_batch: NewBatch, new_state: Any, broker: Any
) -> None:
    batch = one_batch()
    batch.bootstrap = broker.bootstrap
    spec = new_state(store)
    batch.states[spec.name] = spec.open(broker.bootstrap, is_writer=True)
    counts = (
        batch.stream([])
        .each("word", Split(), "part")
        .group_by("part")
        .persistent_aggregate(spec, Count(), "n")
        .new_values_stream()
    )
    first, second = [("to be", 1, None)], [("or not to be", 2, None)]
    assert Counter(batch.run(counts, 0, {"rows": first})) == Counter([("to", 1), ("be", 1)])
    for _ in range(2):
        found = batch.run(counts, 1, {"rows": second})
        assert Counter(found) == Counter([("or", 1), ("not", 1), ("to", 2), ("be", 2)])


def test_reducers_updaters_and_states_without_keys(one_batch: NewBatch, new_state: Any) -> None:
    batch = one_batch()
    specs = {name: new_state("memory") for name in ("words", "total", "prices")}
    for spec in specs.values():
        batch.states[spec.name] = spec.open("")
    rows = batch.stream([("a", 1, 2.5), ("b", 2, 3.5)], partitions=1)
    words = rows.persistent_aggregate(specs["words"], Joined(), "all", "word").new_values_stream()
    total = rows.persistent_aggregate(specs["total"], Sum(), "total", "count").new_values_stream()
    prices = rows.partition_persist(specs["prices"], ["word", "price"], KeepPrices(), "word string")
    assert batch.run(words, 0) == [("ab",)]
    assert batch.run(words, 1) == [("abab",)]
    assert batch.run(total, 0) == [(3,)]
    assert Counter(batch.run(prices.new_values_stream(), 0)) == Counter([("a",), ("b",)])

    asked = batch.stream([("a", 1, None), ("z", 2, None)], "asked", partitions=1)
    known = asked.state_query(prices, "word", MapGet(), "found double")
    assert Counter(batch.run(known, 2)) == Counter([("a", 1, None, 2.5), ("z", 2, None, None)])
    whole = asked.state_query(specs["total"], None, SnapshotGet(), "sum bigint")
    assert {row[3] for row in batch.run(whole, 2)} == {3}


def test_windows_by_count_span_batches_and_repeat_with_their_batch(
    one_batch: NewBatch, new_state: Any
) -> None:
    batch = one_batch()
    tumble, slide = new_state("memory"), new_state("memory")
    for spec in (tumble, slide):
        batch.states[spec.name] = spec.open("")
    rows = batch.stream([])
    tumbled = rows.window(tumbling(count=3), tumble, "count", Sum(), "sum")
    slid = rows.window(sliding(count=3, slide_count=2), slide, "count", Max(), "most")

    def numbers(*values: int) -> dict[str, Any]:
        return {"rows": [("", value, None) for value in values]}

    assert batch.run(tumbled, 0, numbers(1, 2)) == []
    for _ in range(2):
        assert batch.run(tumbled, 1, numbers(3, 4, 5, 6, 7)) == [(6,), (15,)]
    assert batch.run(tumbled, 2, numbers(8, 9)) == [(24,)]
    assert batch.run(slid, 0, numbers(5, 1, 2)) == [(5,)]
    assert batch.run(slid, 1, numbers(3, 4)) == [(3,)]


def test_windows_by_time_hold_the_tuples_of_their_seconds() -> None:
    window = tumbling(seconds=10)
    windows, kept = slide_by_time(window, None, [["a"]], 1001.0)
    assert windows == []
    windows, kept = slide_by_time(window, kept, [["b"]], 1009.0)
    assert windows == []
    windows, kept = slide_by_time(window, kept, [["c"]], 1012.0)
    assert windows == [[["a"], ["b"]]]
    windows, kept = slide_by_time(window, kept, [["d"]], 1055.0)
    assert windows == [[["c"]]]
    windows, kept = slide_by_time(sliding(seconds=10, slide_seconds=5), None, [["a"]], 1001.0)
    windows, kept = slide_by_time(sliding(seconds=10, slide_seconds=5), kept, [], 1030.0)
    assert windows == [[["a"]], [["a"]]]


def test_a_window_needs_an_opaque_state(one_batch: NewBatch) -> None:
    rows = one_batch().stream([])
    with pytest.raises(TridentError, match="declare kind='opaque'"):
        rows.window(tumbling(count=3), state.memory("w", kind="transactional"), "count", Sum(), "sum")
