"""Which checkpoints are taken, and which are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.pipelines.errors import PipelineError
from millrace.pipelines.run import checkpoint
from millrace.pipelines.run.checkpoint import Fingerprint, incompatible
from millrace.testing import Broker

from .topics import create, produce

COUNTS = {"operator": "aggregation", "keys": ["user string"], "state": ["count(1) bigint"]}
MADE = Fingerprint(["clicks"], "counts", "exactly-once", "micro-batch", "2", [COUNTS])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"sources": ["views"]}, "reads views and no longer clicks"),
        ({"output": "other"}, "writes to other and no longer to counts"),
        ({"state": []}, "no longer keeps state (it had aggregation by user string of count(1) bigint)"),
        (
            {"state": [{**COUNTS, "keys": ["page string"]}]},
            "has the keys page string in its aggregation instead of user string",
        ),
        (
            {"state": [{**COUNTS, "state": ["sum(n) bigint"]}]},
            "keeps sum(n) bigint in its aggregation instead of count(1) bigint",
        ),
        ({"state": [COUNTS, COUNTS]}, "keeps different state"),
        ({"state": [{**COUNTS, "operator": "deduplication"}]}, "keeps different state: deduplication by"),
    ],
)
def test_a_change_that_state_does_not_survive_is_told(change: dict[str, Any], told: str) -> None:
    assert told in (incompatible(MADE, replace(MADE, **change)) or "")


@pytest.mark.parametrize(
    "change", [{}, {"delivery": "at-least-once"}, {"mode": "real-time"}, {"shuffle_partitions": "8"}]
)
def test_other_changes_pass(change: dict[str, Any]) -> None:
    assert incompatible(MADE, replace(MADE, **change)) is None


def test_state_that_was_not_there_before_is_told() -> None:
    assert "now keeps state" in (incompatible(replace(MADE, state=[]), MADE) or "")


def test_a_checkpoint_is_taken_by_one_run_at_a_time(tmp_path: Path) -> None:
    held = checkpoint.lock(tmp_path, "counts")
    with pytest.raises(PipelineError, match=r"counts is already running .*--name"):
        checkpoint.lock(tmp_path, "counts")
    held.release()
    checkpoint.lock(tmp_path, "counts").release()


def test_a_checkpoint_is_refused_with_the_remedies(
    tmp_path: Path, spark: SparkSession, broker: Broker
) -> None:
    begin(tmp_path, spark, broker, 0)
    with pytest.raises(PipelineError, match=r"^counts writes to other .*`millrace replay`, or delete "):
        checkpoint.check(spark, tmp_path, "counts", replace(MADE, output="other"), broker.bootstrap)
    checkpoint.check(spark, tmp_path, "counts", replace(MADE, delivery="at-least-once"), broker.bootstrap)


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ({"0": 9}, "the log ends at 3"),
        ({"0": 1}, "the log starts at 2"),
        ({"0": 3, "7": 0}, "no longer has this partition"),
    ],
)
def test_offsets_that_the_log_does_not_have_are_told(
    tmp_path: Path, spark: SparkSession, broker: Broker, place: dict[str, int], told: str
) -> None:
    begin(tmp_path, spark, broker, place)
    with pytest.raises(PipelineError, match=f"^the checkpoint of counts is at offset .*{told}.* delete "):
        checkpoint.check(spark, tmp_path, "counts", MADE, broker.bootstrap)
    checkpoint.check(spark, tmp_path, "counts", MADE, broker.bootstrap, may_lose=True)


def test_a_topic_made_anew_is_told(tmp_path: Path, spark: SparkSession, broker: Broker) -> None:
    begin(tmp_path, spark, broker, {"0": 3}, topics={"clicks": "old"}, cluster="here")
    for cluster, told in (
        ("here", "older than the topic clicks, which was deleted"),
        ("there", "another cluster"),
    ):
        now = replace(MADE, topics={"clicks": "new"}, cluster=cluster)
        with pytest.raises(PipelineError, match=told):
            checkpoint.check(spark, tmp_path, "counts", now, broker.bootstrap)


def test_removing_a_checkpoint_lets_a_query_begin_anew(
    tmp_path: Path, spark: SparkSession, broker: Broker
) -> None:
    begin(tmp_path, spark, broker, {"0": 3})
    assert checkpoint.exists(spark, tmp_path, "counts")
    checkpoint.remove(spark, tmp_path, "counts")
    assert not checkpoint.exists(spark, tmp_path, "counts")


@pytest.fixture(scope="module", autouse=True)
def clicks(broker: Broker) -> None:
    """A topic whose first two records of three are deleted."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    create(broker.bootstrap, "clicks")
    produce(broker.bootstrap, "clicks", ["a", "b", "c"])
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    [deleted] = client.delete_records([TopicPartition("clicks", 0, 2)]).values()
    deleted.result()


def begin(
    path: Path, spark: SparkSession, broker: Broker, place: dict[str, int] | int, **changes: Any
) -> None:
    """Files as Spark leaves them behind after a batch."""
    import json

    checkpoint.check(spark, path, "counts", replace(MADE, **changes), broker.bootstrap)
    offsets = {"clicks": place} if isinstance(place, dict) else {}
    for name, text in (("offsets", f"v1\n{{}}\n{json.dumps(offsets)}"), ("commits", "v1\n{}")):
        directory = path / "counts" / name
        directory.mkdir()
        (directory / "0").write_text(text)
