import json
import threading
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from millrace.pipelines import PipelineError, View, log, pipeline
from millrace.pipelines.kafka import topic_admin
from millrace.pipelines.kafka.records import latest
from millrace.pipelines.views.http_server import http_server
from millrace.pipelines.views.merge import Layer, Merge
from millrace.pipelines.views.served_view import ServedView
from millrace.testing import Broker

from ..waiting import until


@pipeline(lines=log.text("lines"), output=log.json("words"))
def words(lines: DataFrame) -> DataFrame:
    return lines.selectExpr("explode(split(value, ' ')) as word").groupBy("word").count()


WORDS = View(words, key=["word"], merge={"count": "sum"})


class Crowd:
    """Produces words without a pause, and knows how often it has said each."""

    def __init__(self, broker: Broker) -> None:
        topic_admin.ensure("lines", broker.bootstrap, partitions=2)
        self.said: Counter[str] = Counter()
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._talk, daemon=True)
        self._thread.start()

    def _talk(self) -> None:
        number = 0
        while not self._ended.wait(0.002):
            word = f"w{number % 7}"
            # Counted first: what is in the log is never more than what was said.
            self.said[word] += 2
            self._producer.produce("lines", f"{word} {word}")
            number += 1
        self._producer.flush()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


class Reader:
    """Reads a view all the time, and remembers what it must never see."""

    def __init__(self, served: ServedView, crowd: Crowd) -> None:
        self.wrong: list[str] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(served, crowd), daemon=True)
        self._thread.start()

    def _read(self, served: ServedView, crowd: Crowd) -> None:
        before: Counter[str] = Counter()
        while not self._ended.wait(0.005):
            seen = counts(served)
            said = Counter(crowd.said)
            for word in seen.keys() | before.keys():
                if seen[word] > said[word]:
                    self.wrong.append(f"{word} was said {said[word]} times and counted {seen[word]} times")
                if seen[word] < before[word]:
                    self.wrong.append(f"{word} fell from {before[word]} to {seen[word]}")
            before = seen

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        assert not self.wrong, self.wrong[:5]


def counts(served: ServedView) -> Counter[str]:
    return Counter({row["word"]: row["count"] for row in served.rows()})


def test_each_record_counts_once_across_cuts_batches_and_restarts(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    crowd = Crowd(broker)
    until(lambda: sum(crowd.said.values()) > 100)
    with WORDS.serve(spark, broker.bootstrap, checkpoints=tmp_path) as served:
        reader = Reader(served, crowd)
        batch = sum(counts(served).values())
        assert batch > 0
        until(lambda: sum(counts(served).values()) > batch)
        first = served.cut
        served.refresh()
        assert served.cut.generation == first.generation + 1
        assert sum(served.cut.cut["lines"].values()) > sum(first.cut["lines"].values())
        assert not topic_admin.exists(first.live, broker.bootstrap)
        reader.end()
    with WORDS.serve(spark, broker.bootstrap, checkpoints=tmp_path) as served:
        assert served.cut.generation == 2
        reader = Reader(served, crowd)
        crowd.end()
        until(lambda: counts(served) == crowd.said)
        reader.end()
        assert served.get("w3") == {"word": "w3", "count": crowd.said["w3"]}
        assert served.get("never") is None
        merged = latest("words-view", broker.bootstrap)
        until(lambda: _as_counts(latest("words-view", broker.bootstrap)) == crowd.said)
        assert set(merged) == set(crowd.said)


def _as_counts(merged: dict[str, bytes]) -> dict[str, int]:
    return {key: json.loads(value)["count"] for key, value in merged.items()}


def test_what_cannot_be_merged_is_refused(spark: SparkSession, broker: Broker) -> None:
    topic_admin.ensure("visits", broker.bootstrap)

    @pipeline(visits=log.text("visits"), output=log.json("unique"))
    def unique(visits: DataFrame) -> DataFrame:
        return visits.dropDuplicates(["value"])

    @pipeline(visits=log.text("visits"), output=log.json("stats"))
    def stats(visits: DataFrame) -> DataFrame:
        return visits.groupBy("value").agg({"value": "count"})

    with pytest.raises(PipelineError, match="deduplication by value string depends on records on both sides"):
        View(unique, key=["value"], merge={}).check(spark, broker.bootstrap)
    with pytest.raises(PipelineError, match=r"no rule for count\(value\)"):
        View(stats, key=["value"], merge={}).check(spark, broker.bootstrap)
    with pytest.raises(PipelineError, match="has no column page; it has value"):
        View(stats, key=["page"], merge={}).check(spark, broker.bootstrap)


def test_rows_merge_column_by_column() -> None:
    merge = Merge(
        ["k"], {"n": "sum", "low": "min", "high": "max", "at": "last", "all": lambda a, b: [*a, *b]}
    )
    older = {"k": 1, "n": 2, "low": 3, "high": 3, "at": "x", "all": [1]}
    newer = {"k": 1, "n": 5, "low": 4, "high": 4, "at": "y", "all": [2]}
    assert merge(older, newer) == {"k": 1, "n": 7, "low": 3, "high": 4, "at": "y", "all": [1, 2]}
    assert merge(older, None) == older
    assert merge(None, newer) == newer
    assert merge(older, {"k": 1, "n": None})["n"] == 2


def test_rows_of_an_aggregation_replace_each_other_and_others_add_up() -> None:
    merge = Merge(["k"], {"n": "sum"})
    for accumulates, expected in ((False, 2), (True, 3)):
        layer = Layer(merge, accumulates=accumulates)
        assert layer.put({"k": "a", "n": 1}) == "a"
        layer.put({"k": "a", "n": 2})
        assert layer.rows == {"a": {"k": "a", "n": expected}}


def test_rules_are_checked_when_they_are_declared() -> None:
    with pytest.raises(PipelineError, match="use sum, min, max, last, or a function"):
        View(words, key=["word"], merge={"count": "avg"})  # type: ignore[dict-item]
    with pytest.raises(PipelineError, match="needs a key"):
        View(words, key=[], merge={"count": "sum"})


class FixedView:
    """A view of two rows, without a log."""

    def __init__(self) -> None:
        self._rows = {"anna": {"name": "anna", "n": 1}, '["x",2]': {"a": "x", "b": 2}}

    def rows(self) -> list[dict[str, object]]:
        return list(self._rows.values())

    def find(self, key: str) -> dict[str, object] | None:
        return self._rows.get(key)


def test_rows_are_served_as_json() -> None:
    with http_server(FixedView(), "127.0.0.1", 0) as server:  # type: ignore[arg-type]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"

        def get(path: str) -> object:
            with urllib.request.urlopen(address + path) as response:
                return json.load(response)

        assert get("/") == FixedView().rows()
        assert get("/anna") == {"name": "anna", "n": 1}
        assert get("/x/2") == {"a": "x", "b": 2}
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get("/nobody")
        server.shutdown()
