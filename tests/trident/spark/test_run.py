"""Runs of topologies over a real log: crashes between any two writes, restarts, and refusals."""

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.pipelines import PipelineError, log
from millrace.testing import Broker, read_records, write_records
from millrace.testing.records import create_topics
from millrace.trident import Count, Split, TridentError, TridentTopology, field, state
from millrace.trident.spark.run import TridentRun
from millrace.trident.state import StateSpec

from ..conftest import STORES

NUMBERS = itertools.count()


class Crash(Exception):
    """The driver fails after the batch is written, before Spark's checkpoint knows."""


def word_count(spec: StateSpec) -> TridentTopology:
    number = next(NUMBERS)
    topology = TridentTopology(f"word-count-{number}")
    counts = (
        topology.new_stream("sentences", log.text(f"sentences-{number}"))
        .each("value", Split(), "word")
        .group_by("word")
        .persistent_aggregate(spec, Count(), "count")
    )
    counts.new_values_stream().to_log(log.json(f"counts-{number}", "word string, count bigint", key="word"))
    return topology


class Runs:
    """Writes sentences and runs a topology over them."""

    def __init__(
        self, topology: TridentTopology, spark: SparkSession, bootstrap: str, checkpoints: Path
    ) -> None:
        self.topology = topology
        self._arguments: tuple[Any, ...] = (topology, spark, bootstrap)
        self._checkpoints = checkpoints
        [self.source] = topology.sources
        self._bootstrap = bootstrap
        create_topics(bootstrap, [self.source.topic.name])

    def run(self, *sentences: str, crash: bool = False, **options: Any) -> None:
        write_records(self._bootstrap, self.source.topic, sentences)
        run = TridentRun(
            *self._arguments,
            checkpoints=options.pop("checkpoints", self._checkpoints),
            available_now=True,
            around_batches=crashing if crash else None,
            **options,
        )
        if crash:
            with pytest.raises(PipelineError, match="failed"):
                run.run()
        else:
            run.run()

    def counts(self, spec: StateSpec, *words: str) -> dict[str, int]:
        opened = spec.open(self._bootstrap)
        try:
            return dict(zip(words, opened.multi_get([[word] for word in words]), strict=True))
        finally:
            opened.close()


def crashing(write: Callable[..., None]) -> Callable[..., None]:
    def write_and_crash(frame: Any, batch: int) -> None:
        write(frame, batch)
        raise Crash

    return write_and_crash


@pytest.mark.parametrize("store", [store for store in STORES if store != "memory"])
def test_a_crash_after_the_update_counts_no_word_twice(
    store: str, new_state: Any, spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    spec = new_state(store)
    runs = Runs(word_count(spec), spark, broker.bootstrap, tmp_path)
    runs.run("to be")
    runs.run("or not to be", crash=True)
    runs.run("that is")
    expected = Counter(["to", "be", "or", "not", "to", "be", "that", "is"])
    assert runs.counts(spec, *expected) == expected
    [sink] = [sink for sink in runs.topology.sinks if hasattr(sink, "topic")]
    written = read_records(broker.bootstrap, sink.topic)
    # Every change of a count appears once.
    assert Counter((record["word"], record["count"]) for record in written) == Counter(
        (word, number) for word, count in expected.items() for number in range(1, count + 1)
    )


def test_another_checkpoint_is_refused_and_may_adopt_the_state(
    new_state: Any, spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    spec = new_state("sqlite")
    runs = Runs(word_count(spec), spark, broker.bootstrap, tmp_path / "one")
    runs.run("a")
    with pytest.raises(TridentError, match="--adopt-state"):
        runs.run(checkpoints=tmp_path / "two")
    assert runs.counts(spec, "a") == {"a": 1}
    runs.run(checkpoints=tmp_path / "two", adopt=True)
    # The new checkpoint reads the log from its start.
    assert runs.counts(spec, "a") == {"a": 2}
    with pytest.raises(TridentError, match="belongs to another query"):
        runs.run()


def test_streams_of_two_topics_join_within_a_batch(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topology = TridentTopology("joined")
    users = topology.new_stream("users", log.json("users", "id bigint, name string"))
    clicks = topology.new_stream("clicks", log.json("clicks", "user bigint, page string"))
    joined = topology.join([users, clicks], ["id", "user"], ["user", "name", "page"], ["outer", "inner"])
    output = log.json("named-clicks", "user bigint, name string, page string")
    joined.filter(field("page") != "/secret").to_log(output)
    create_topics(broker.bootstrap, ["users", "clicks"])
    write_records(broker.bootstrap, users.node.topic, [{"id": 1, "name": "anna"}])
    pages = [{"user": 1, "page": "/"}, {"user": 2, "page": "/a"}, {"user": 1, "page": "/secret"}]
    write_records(broker.bootstrap, clicks.node.topic, pages)
    TridentRun(topology, spark, broker.bootstrap, checkpoints=tmp_path, available_now=True).run()
    found = {
        (record["user"], record.get("name"), record["page"])
        for record in read_records(broker.bootstrap, output)
    }
    assert found == {(1, "anna", "/"), (2, None, "/a")}


def test_wrong_topologies_are_refused_before_spark_reads(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    def refused(topology: TridentTopology, reason: str) -> None:
        with pytest.raises(Exception, match=reason):
            TridentRun(topology, spark, broker.bootstrap, checkpoints=tmp_path, available_now=True).run()

    refused(TridentTopology("empty"), "begin with new_stream")
    idle = TridentTopology("idle")
    idle.new_stream("x", log.text("nothing"))
    refused(idle, "end a stream with")
    missing = TridentTopology("missing")
    counted = missing.new_stream("x", log.text("no-such-topic")).group_by("value")
    counted.persistent_aggregate(state.sqlite(tmp_path / "x.db", "counts"), Count(), "count")
    refused(missing, "there is no topic no-such-topic")
