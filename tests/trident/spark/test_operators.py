"""Each operator on Spark against a plain Python model of it."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from millrace.trident import (
    Aggregator,
    CombinerAggregator,
    Count,
    Equals,
    FilterNull,
    Function,
    Max,
    Min,
    Negate,
    ReducerAggregator,
    Split,
    Sum,
    TridentError,
    field,
)

from .conftest import OneBatch

NewBatch = Callable[[], OneBatch]
words = st.none() | st.sampled_from(["to be", "or", "not  to", "", "straße"])
numbers = st.none() | st.integers(-1000, 1000)
prices = st.none() | st.floats(-100, 100, width=16)
rows = st.lists(st.tuples(words, numbers, prices), max_size=30)
# An example is a Spark job: few, but of many rows each.
few = settings(
    max_examples=2,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def same(found: Any, expected: Any) -> bool:
    return Counter(found) == Counter(expected)


class Doubled(Function):
    def execute(self, tup, collector):
        if tup["count"] is not None:
            collector.emit([tup["count"] * 2])
            collector.emit([tup["count"] * 3])


class Product(CombinerAggregator):
    def init(self, tup):
        return (tup[0] or 1) % 1009

    def combine(self, left, right) -> int:
        return left * right % 1009

    def zero(self):
        return 1


class Longest(ReducerAggregator):
    def init(self):
        return 0

    def reduce(self, current, tup) -> int:
        return max(current, len(tup[0] or ""))


class Distinct(Aggregator):
    """Emits each distinct value once."""

    def init(self, batch, collector):
        return set()

    def aggregate(self, value, tup, collector):
        value.add(tup[0])

    def complete(self, value, collector):
        for one in value:
            collector.emit([one])


@few
@given(rows)
def test_functions_append_and_native_ones_equal_python(one_batch: NewBatch, data: Any) -> None:
    batch = one_batch()
    split = batch.stream(data).each("word", Split(), "part")
    assert split.fields == ("word", "count", "price", "part")
    assert same(
        batch.run(split),
        [(*row, part) for row in data for part in (row[0] or "").split(" ") if row[0] is not None],
    )

    doubled = split.each("count", Doubled(), "more bigint")
    expected = [
        (*row, part, row[1] * factor)
        for row in data
        if row[0] is not None and row[1] is not None
        for part in row[0].split(" ")
        for factor in (2, 3)
    ]
    assert same(batch.run(doubled), expected)


@few
@given(rows)
def test_expressions_run_as_spark_expressions_with_pythons_values(one_batch: NewBatch, data: Any) -> None:
    expression = (field("count") + 1) * 2 - field("price") / field("count")
    batch = one_batch()
    stream = batch.stream(data)
    found = batch.run(stream.each("count", expression, "made").each("word", field("word").upper(), "loud"))
    names = ("word", "count", "price")
    for row in found:
        of_row = dict(zip(names, row, strict=False))
        expected = expression.evaluate(of_row)
        assert row[3] == (None if expected is None else pytest.approx(expected))
        assert row[4] == field("word").upper().evaluate(of_row)
    assert same([row[:3] for row in found], data)


@few
@given(rows)
def test_filters_keep_the_same_tuples_in_spark_and_in_python(one_batch: NewBatch, data: Any) -> None:
    batch = one_batch()
    stream = batch.stream(data)
    kept = [
        (stream.each(["word", "price"], FilterNull()), lambda w, c, p: w is not None and p is not None),
        (stream.each("word", Negate(FilterNull())), lambda w, c, p: w is None),
        (stream.each(["count", "count"], Equals()), lambda w, c, p: True),
        (stream.filter(field("count") >= 0), lambda w, c, p: c is not None and c >= 0),
        (stream.filter(field("count") != 3, "count"), lambda w, c, p: c is not None and c != 3),
        (
            stream.filter(lambda count: count is not None and count % 2 == 0, "count"),
            lambda w, c, p: c is not None and c % 2 == 0,
        ),
    ]
    for filtered, keeps in kept:
        assert same(batch.run(filtered), [row for row in data if keeps(*row)])


@few
@given(rows)
def test_map_flat_map_project_and_peek_replace_and_keep_tuples(one_batch: NewBatch, data: Any) -> None:
    def length(word: str | None, count: int | None, price: float | None) -> int:
        return len(word or "")

    def letters(word: str | None) -> Iterator[str]:
        yield from word or ""

    batch = one_batch()
    stream = batch.stream(data)
    assert same(batch.run(stream.map(length, "length")), [(len(row[0] or ""),) for row in data])
    assert same(
        batch.run(stream.flat_map(letters, "letter", "word")), [(c,) for row in data for c in row[0] or ""]
    )
    assert same(batch.run(stream.project(["price", "word"])), [(row[2], row[0]) for row in data])
    assert same(batch.run(stream.peek(lambda *values: None)), data)
    pairs = stream.map(lambda word, count: (word, count), ["w string", "c bigint"], ["word", "count"])
    assert same(batch.run(pairs), [row[:2] for row in data])


@few
@given(rows)
def test_moving_tuples_between_tasks_changes_none(one_batch: NewBatch, data: Any) -> None:
    batch = one_batch()
    stream = batch.stream(data)
    for moved in (
        stream.shuffle(),
        stream.partition_by("word"),
        stream.global_(),
        stream.group_by("word").to_stream(),
    ):
        assert same(batch.run(moved), data)
    # Two tasks, each with every tuple.
    assert same(batch.run(stream.broadcast()), [*data, *data])
    counted = batch.run(stream.broadcast().partition_aggregate(None, Count(), "count"))
    # Spark runs no task for a batch without tuples.
    assert counted == ([(len(data),)] * 2 if data else [])


@few
@given(rows)
@example([])
def test_aggregates_of_a_batch(one_batch: NewBatch, data: Any) -> None:
    batch = one_batch()
    stream = batch.stream(data)
    counts = [count for _, count, _ in data if count is not None]
    expected: list[Any] = [
        (Count(), "n", len(data)),
        (Sum(), "n", sum(counts)),
        (Min(), "n", min(counts, default=None)),
        (Max(), "n", max(counts, default=None)),
        (Product(), "n", _product(counts)),
        (Longest(), "n", 0),
    ]
    for aggregator, output, value in expected:
        inputs = "word" if isinstance(aggregator, Longest) else "count"
        if isinstance(aggregator, Longest):
            value = max((len(word or "") for word, _, _ in data), default=0)
        assert batch.run(stream.aggregate(inputs, aggregator, output)) == [(value,)]
    distinct = batch.run(stream.aggregate("count", Distinct(), "count bigint"))
    assert same(distinct, [(count,) for count in {row[1] for row in data}])


def _product(counts: list[int]) -> int:
    product = 1
    for count in counts:
        product = product * (count or 1) % 1009
    return product


@few
@given(rows)
@example([])
def test_aggregates_of_groups(one_batch: NewBatch, data: Any) -> None:
    groups: dict[Any, list[Any]] = defaultdict(list)
    for row in data:
        groups[row[0]].append(row)
    batch = one_batch()
    grouped = batch.stream(data).group_by("word")
    assert same(
        batch.run(grouped.aggregate(None, Count(), "n")),
        [(word, len(found)) for word, found in groups.items()],
    )
    assert same(
        batch.run(grouped.aggregate("count", Product(), "n")),
        [(word, _product([row[1] or 1 for row in found])) for word, found in groups.items()],
    )
    chained = (
        grouped.chained_agg()
        .aggregate(None, Count(), "n")
        .aggregate("count", Sum(), "total")
        .aggregate("count", Distinct(), "one bigint")
        .chain_end()
    )
    expected = [
        (word, len(found), sum(row[1] or 0 for row in found), one)
        for word, found in groups.items()
        for one in {row[1] for row in found}
    ]
    assert same(batch.run(chained), expected)
    native = grouped.chained_agg().aggregate(None, Count(), "n").aggregate("price", Max(), "most").chain_end()
    largest = {
        word: max((row[2] for row in found if row[2] is not None), default=None)
        for word, found in groups.items()
    }
    assert same(batch.run(native), [(word, len(found), largest[word]) for word, found in groups.items()])


@few
@given(rows)
def test_the_smallest_largest_and_top_tuples(one_batch: NewBatch, data: Any) -> None:
    batch = one_batch()
    stream = batch.stream(data)
    counts = sorted(row[1] for row in data if row[1] is not None)
    assert [row[1] for row in batch.run(stream.min_by("count"))] == counts[:1]
    assert [row[1] for row in batch.run(stream.max_by("count"))] == counts[-1:]
    assert [row[1] for row in batch.run(stream.top(3, "count"))] == counts[::-1][:3]
    assert not Counter(batch.run(stream.top(3, "count"))) - Counter(data)


@few
@given(rows, rows)
def test_merge_is_a_union(one_batch: NewBatch, left: Any, right: Any) -> None:
    batch = one_batch()
    merged = batch.topology.merge(batch.stream(left, "a"), batch.stream(right, "b"))
    assert same(batch.run(merged), [*left, *right])


short = st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), numbers, prices), max_size=6)


@few
@given(short, short, short)
def test_joins_of_two_and_three_streams(one_batch: NewBatch, a: Any, b: Any, c: Any) -> None:
    batch = one_batch()
    streams = [
        batch.stream(data, name).project(["word", "count"]) for name, data in (("a", a), ("b", b), ("c", c))
    ]
    plain = [[row[:2] for row in data] for data in (a, b, c)]
    for kinds in (("inner", "inner"), ("inner", "outer"), ("outer", "inner"), ("outer", "outer")):
        joined = batch.topology.join(streams[:2], ["word", "word"], ["word", "x", "y"], kinds)
        assert same(batch.run(joined), _joined(plain[:2], kinds)), kinds
    mixed = ("outer", "inner", "outer")
    joined = batch.topology.join(streams, ["word"] * 3, ["word", "x", "y", "z"], mixed)
    assert same(batch.run(joined), _joined(plain, mixed))


def _joined(sides: Any, kinds: Any) -> list[Any]:
    found = []
    for key in {row[0] for side in sides for row in side}:
        values = [[row[1] for row in side if row[0] == key] for side in sides]
        if any(not side and kind == "inner" for side, kind in zip(values, kinds, strict=True)):
            continue
        filled = [side or [None] for side in values]
        found += [(key, *combination) for combination in itertools.product(*filled)]
    return found


# Errors


def test_a_failing_function_is_named_with_its_tuple(one_batch: NewBatch) -> None:
    def broken(count: int) -> int:
        return 1 // count

    batch = one_batch()
    stream = batch.stream([("a", 0, 1.0)]).each("count", broken, "x")
    with pytest.raises(Exception, match=r"broken failed on \(0,\): ZeroDivisionError"):
        batch.run(stream)


def test_a_value_of_another_type_is_named(one_batch: NewBatch) -> None:
    batch = one_batch()
    stream = batch.stream([("a", 0, 1.0)]).each("count", lambda count: "text", "x bigint")
    with pytest.raises(Exception, match=r"declared as int64, but it made 'text' \(str\)"):
        batch.run(stream)


def test_merged_streams_of_other_types_are_refused(one_batch: NewBatch) -> None:
    batch = one_batch()
    stream = batch.stream([("a", 0, 1.0)])
    with pytest.raises(TridentError, match="word is string and count is bigint"):
        batch.run(batch.topology.merge(stream.project("word"), stream.project("count")))
