"""Streams as they are declared: fields, types, refusals, and the explanation. Nothing here needs Spark."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millrace.pipelines import log
from millrace.trident import (
    Count,
    FilterNull,
    MapGet,
    Split,
    StateUpdater,
    Stream,
    Sum,
    TridentError,
    TridentTopology,
    field,
    state,
)
from millrace.trident.loading import load
from millrace.trident.model.explanation import explain
from millrace.trident.model.fields import type_name

EXAMPLE = Path(__file__).parents[3] / "examples" / "trident" / "word_count.py"


def stream(topology: TridentTopology | None = None) -> Stream:
    return (topology or TridentTopology("test")).new_stream(
        "s", log.json("t", "word string, price decimal(10,2), at timestamp")
    )


def test_functions_append_and_aggregators_replace_fields() -> None:
    words = stream()
    assert words.fields == ("word", "price", "at")
    assert words.each("word", Split(), "part").fields == ("word", "price", "at", "part")
    assert words.map(lambda word: word, "w string", "word").fields == ("w",)
    assert words.group_by("word").aggregate("price", Sum(), "total").fields == ("word", "total")
    assert words.aggregate(None, Count(), "n").fields == ("n",)


def test_types_come_from_annotations() -> None:
    def length(word: str) -> int:
        return len(word)

    def parts(word: str) -> Iterator[tuple[str, float | None]]:
        yield word, None

    node: Any = stream().each("word", length, "n").node
    assert [output.type for output in node.outputs] == ["bigint"]
    node = stream().flat_map(parts, ["part", "weight"], "word").node
    assert [output.type for output in node.outputs] == ["string", "double"]
    assert type_name(dict[str, list[int]]) == "map<string,array<bigint>>"


class Keep(StateUpdater):
    def update_state(self, state, tuples, collector):
        pass


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda s: s.each("wrod", Split(), "part"), "no field 'wrod'; its fields are word, price, at"),
        (lambda s: s.each("word", Split(), "price"), "has a field 'price' already"),
        (lambda s: s.each("word", Split()), "name its output fields"),
        (lambda s: s.each("word", FilterNull(), "x"), "is a filter, which has no output fields"),
        (lambda s: s.each("word", lambda word: 1, "x"), "the type of the field 'x' that .* makes is unknown"),
        (lambda s: s.filter(field("cuont") > 1), "no field 'cuont'"),
        (lambda s: s.filter(7), "7 is not a filter"),
        (lambda s: s.aggregate("word", len, "n"), "len is not an aggregator"),
        (lambda s: s.aggregate(None, Sum(), "n"), "Sum.. aggregates one field"),
        (lambda s: s.top(0, "price"), "give a number from 1 on"),
        (
            lambda s: s.group_by("word").persistent_aggregate("counts", Count(), "n"),
            "'counts' is not a state",
        ),
        (lambda s: s.state_query(state.memory("x"), "word", len, "n"), "len is not a query"),
        (lambda s: s.partition_persist(state.memory("x"), "word", len), "len is not an updater"),
        (lambda s: s.group_by("word").chained_agg().chain_end(), "call aggregate before chain_end"),
        (lambda s: s.topology.merge(s, s.project("word")), "same number of fields"),
        (lambda s: s.topology.join([s, s], ["word", "word"], ["word"]), "name 5 different outputs"),
        (lambda s: s.topology.new_stream("s", log.text("x")), "two streams called 's'"),
        (lambda s: s.topology.new_stream("x", log.json("x")), "needs a schema"),
        (lambda s: s.topology.new_stream("x", log.table("x", "a string", key="a")), "is a table"),
        (lambda s: TridentTopology("a b"), "cannot be called 'a b'"),
    ],
)
def test_wrong_declarations_are_refused_with_a_remedy(build: Callable[[Stream], Any], reason: str) -> None:
    with pytest.raises(TridentError, match=reason):
        build(stream())


def test_two_updates_of_one_state_in_a_batch_are_refused() -> None:
    words = stream().group_by("word")
    counts = state.memory("counts")
    words.persistent_aggregate(counts, Count(), "n")
    with pytest.raises(TridentError, match="two streams update the state counts"):
        words.persistent_aggregate(counts, Count(), "n")


def test_a_drpc_stream_only_queries() -> None:
    topology = TridentTopology("test")
    calls = topology.new_drpc_stream("words")
    with pytest.raises(TridentError, match="only queries"):
        calls.group_by("args").persistent_aggregate(state.memory("x"), Count(), "n")
    calls.state_query(state.memory("x"), "args", MapGet(), "n")
    calls.project("args")
    with pytest.raises(TridentError, match="has 2 ends"):
        topology.results(topology.requests[0])


def test_the_explanation_says_where_each_operator_runs_and_why() -> None:
    text = explain(load(EXAMPLE))
    assert "[Spark] each Split(' ') of 1 -> value, word" in text
    assert "Split(' ') is an expression of Spark" in text
    assert "[driver] persistent_aggregate Count() in word_counts" in text
    topology = TridentTopology("python")
    stream(topology).each("word", len, "n bigint").to_log(log.json("out"))
    assert "[Python] each len of 1" in explain(topology)
    assert "len is Python code" in explain(topology)


def test_files_without_a_topology_or_with_several_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "none.py"
    file.write_text("x = 1\n")
    with pytest.raises(TridentError, match="has no Trident topologies"):
        load(file)
    file = tmp_path / "two.py"
    file.write_text("from millrace.trident import TridentTopology as T\na, b = T('a'), T('b')\n")
    with pytest.raises(TridentError, match=r"a, b; write .*two.py:a"):
        load(file)
    assert load(f"{file}:b").name == "b"
