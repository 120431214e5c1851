"""DRPC streams over Trident's states: in a worker, against every store that a worker can reach."""

import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from millrace.pipelines import log
from millrace.testing import Broker, LocalTopology
from millrace.trident import (
    Count,
    FilterNull,
    MapGet,
    Split,
    Sum,
    TridentError,
    TridentTopology,
    field,
    state,
)
from millrace.trident.local import LocalBatch
from millrace.trident.state import StateSpec, Transaction

NewState = Callable[..., StateSpec]


def queries(spec: StateSpec) -> TridentTopology:
    topology = TridentTopology("word-count")
    (
        topology.new_drpc_stream("words")
        .each("args", Split(), "word")
        .group_by("word")
        .state_query(spec, "word", MapGet(), "count")
        .each("count", FilterNull())
        .aggregate("count", Sum(), "sum")
    )
    return topology


@pytest.mark.parametrize("store", ["sqlite", "postgresql", "redis"])
def test_a_call_sees_the_counts_of_the_last_batch(store: str, new_state: NewState) -> None:
    spec = new_state(store)
    writer = spec.open("")
    with LocalTopology(queries(spec).drpc_topology()) as local:
        for batch in range(2):
            writer.begin_commit(Transaction(0, batch))
            writer.multi_update([["to"], ["be"]], [lambda count: (count or 0) + 1] * 2)
            writer.commit(Transaction(0, batch))
            expires = (time.time() + 60) * 1000
            request = {"args": "to be or", "expires": expires}
            local.send("_drpc.requests.words", request, key=str(batch))
        found = {record.key: json.loads(record.value) for record in local.written}
    assert found == {b"0": [[2]], b"1": [[4]]}


def test_a_state_in_the_log_is_followed(new_state: NewState, broker: Broker) -> None:
    spec = new_state("log")
    topology = queries(spec)
    writer, reader = spec.open(broker.bootstrap), spec.open(broker.bootstrap)
    [request] = topology.requests
    for batch in range(3):
        writer.begin_commit(Transaction(0, batch))
        writer.multi_put([["to"]], [batch])
        writer.commit(Transaction(0, batch))
        local = LocalBatch(request, [("to",)], lambda _: reader)
        assert local.rows(topology.results(request)) == [(batch,)]


def test_memory_and_operators_of_spark_are_refused_with_the_reason() -> None:
    with pytest.raises(TridentError, match="in the memory of Spark's driver"):
        queries(state.memory("counts")).drpc_topology()
    with pytest.raises(TridentError, match="give the whole path"):
        queries(state.sqlite("counts.db", "counts")).drpc_topology()
    topology = TridentTopology("mixed")
    rows = topology.new_stream("rows", log.text("rows"))
    topology.merge(topology.new_drpc_stream("f"), rows)
    with pytest.raises(TridentError, match="uses stream rows from rows, which runs on Spark"):
        topology.drpc_topology()
    with pytest.raises(TridentError, match="has no DRPC stream"):
        TridentTopology("none").drpc_topology()


def test_operators_of_a_call_equal_their_model() -> None:
    topology = TridentTopology("local")
    calls = topology.new_drpc_stream("f")
    words = calls.flat_map(lambda args: args.split(), "word string")
    [request] = topology.requests

    def run(stream: Any) -> Any:
        return LocalBatch(request, [("a b a c",)], lambda _: None).rows(stream.node)

    counted = words.group_by("word").aggregate(None, Count(), "n")
    assert Counter(run(counted)) == Counter([("a", 2), ("b", 1), ("c", 1)])
    assert run(counted.max_by("n")) == [("a", 2)]
    assert run(counted.filter(field("n") > 1).project("word")) == [("a",)]
    joined = topology.join([counted, words], ["word", "word"], ["word", "n"])
    assert Counter(run(joined)) == Counter([("a", 2), ("a", 2), ("b", 1), ("c", 1)])
    assert len(run(topology.merge(words, words))) == 8
