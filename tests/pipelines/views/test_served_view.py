"""Views that merge a batch with a stream, while records arrive."""

import json
import threading
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from millrace.pipelines import PipelineError, View, log, pipeline
from millrace.pipelines.kafka import topic_admin
from millrace.pipelines.kafka.records import latest
from millrace.pipelines.views.served_view import ServedView
from millrace.testing import Broker

from ...waiting import until


@pipeline(lines=log.text("lines"), output=log.json("words"))
def words(lines: DataFrame) -> DataFrame:
    return lines.selectExpr("explode(split(value, ' ')) as word").groupBy("word").count()


WORDS = View(words, key=["word"], merge={"count": "sum"})


class WordProducer:
    """Produces words continuously, and counts how often it has produced each."""

    def __init__(self, broker: Broker) -> None:
        topic_admin.ensure("lines", broker.bootstrap, partitions=2)
        self.counts: Counter[str] = Counter()
        self._producer = Producer({"bootstrap.servers": broker.bootstrap})
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._produce_words, daemon=True)
        self._thread.start()

    def _produce_words(self) -> None:
        number = 0
        while not self._ended.wait(0.01):
            word = f"w{number % 7}"
            # Counted before it is produced: the log never has more than the count.
            self.counts[word] += 2
            self._producer.produce("lines", f"{word} {word}")
            number += 1
        self._producer.flush()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


class Reader:
    """Reads a view continuously, and records rows that it must never see."""

    def __init__(self, served: ServedView, producer: WordProducer) -> None:
        self.wrong: list[str] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(served, producer), daemon=True)
        self._thread.start()

    def _read(self, served: ServedView, producer: WordProducer) -> None:
        before: Counter[str] = Counter()
        while not self._ended.wait(0.02):
            seen = counts(served)
            produced = Counter(producer.counts)
            for word in seen.keys() | before.keys():
                if seen[word] > produced[word]:
                    self.wrong.append(
                        f"{word} was produced {produced[word]} times and counted {seen[word]} times"
                    )
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
    producer = WordProducer(broker)
    until(lambda: sum(producer.counts.values()) > 30)
    with WORDS.serve(spark, broker.bootstrap, checkpoints=tmp_path) as served:
        reader = Reader(served, producer)
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
        reader = Reader(served, producer)
        producer.end()
        until(lambda: counts(served) == producer.counts)
        reader.end()
        assert served.get("w3") == {"word": "w3", "count": producer.counts["w3"]}
        assert served.get("never") is None
        merged = latest("words-view", broker.bootstrap)
        until(lambda: _as_counts(latest("words-view", broker.bootstrap)) == producer.counts)
        assert set(merged) == set(producer.counts)


def _as_counts(merged: dict[str, bytes]) -> dict[str, int]:
    return {key: json.loads(value)["count"] for key, value in merged.items()}


def test_results_that_cannot_be_merged_are_refused(spark: SparkSession, broker: Broker) -> None:
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


def test_rules_are_checked_when_declared() -> None:
    with pytest.raises(PipelineError, match="use sum, min, max, last, or a function"):
        View(words, key=["word"], merge={"count": "avg"})  # type: ignore[dict-item]
    with pytest.raises(PipelineError, match="needs a key"):
        View(words, key=[], merge={"count": "sum"})
