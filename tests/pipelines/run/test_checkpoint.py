"""Checkpoints that are accepted, and those that are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from millrace.pipelines.errors import PipelineError
from millrace.pipelines.run import checkpoint
from millrace.pipelines.run.checkpoint import Fingerprint, incompatible
from millrace.testing import Broker

from ..log_client import create, produce

COUNTS = {"operator": "aggregation", "keys": ["user string"], "state": ["count(1) bigint"]}
SAVED = Fingerprint(["clicks"], "counts", "exactly-once", "micro-batch", "2", [COUNTS])


@pytest.mark.parametrize(
    ("change", "expected"),
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
def test_incompatible_change_is_described(change: dict[str, Any], expected: str) -> None:
    assert expected in (incompatible(SAVED, replace(SAVED, **change)) or "")


@pytest.mark.parametrize(
    "change", [{}, {"delivery": "at-least-once"}, {"mode": "real-time"}, {"shuffle_partitions": "8"}]
)
def test_compatible_changes_are_accepted(change: dict[str, Any]) -> None:
    assert incompatible(SAVED, replace(SAVED, **change)) is None


def test_new_state_is_described() -> None:
    assert "now keeps state" in (incompatible(replace(SAVED, state=[]), SAVED) or "")


def test_second_run_cannot_lock_a_checkpoint(tmp_path: Path) -> None:
    held = checkpoint.lock(tmp_path, "counts")
    with pytest.raises(PipelineError, match=r"counts is already running .*--name"):
        checkpoint.lock(tmp_path, "counts")
    held.release()
    checkpoint.lock(tmp_path, "counts").release()


def test_refusal_names_the_remedies(tmp_path: Path, spark: SparkSession, broker: Broker) -> None:
    begin(tmp_path, spark, broker, 0)
    with pytest.raises(PipelineError, match=r"^counts writes to other .*`millrace replay`, or delete "):
        checkpoint.check(spark, tmp_path, "counts", replace(SAVED, output="other"), broker.bootstrap)
    checkpoint.check(spark, tmp_path, "counts", replace(SAVED, delivery="at-least-once"), broker.bootstrap)


@pytest.mark.parametrize(
    ("offsets", "reason"),
    [
        ({"0": 9}, "the log ends at 3"),
        ({"0": 1}, "the log starts at 2"),
        ({"0": 3, "7": 0}, "no longer has this partition"),
    ],
)
def test_offsets_outside_the_log_are_refused(
    tmp_path: Path, spark: SparkSession, broker: Broker, offsets: dict[str, int], reason: str
) -> None:
    begin(tmp_path, spark, broker, offsets)
    with pytest.raises(PipelineError, match=f"^the checkpoint of counts is at offset .*{reason}.* delete "):
        checkpoint.check(spark, tmp_path, "counts", SAVED, broker.bootstrap)
    checkpoint.check(spark, tmp_path, "counts", SAVED, broker.bootstrap, may_lose=True)


def test_recreated_topic_is_refused(tmp_path: Path, spark: SparkSession, broker: Broker) -> None:
    begin(tmp_path, spark, broker, {"0": 3}, topics={"clicks": "old"}, cluster="here")
    for cluster, reason in (
        ("here", "older than the topic clicks, which was deleted"),
        ("there", "another cluster"),
    ):
        now = replace(SAVED, topics={"clicks": "new"}, cluster=cluster)
        with pytest.raises(PipelineError, match=reason):
            checkpoint.check(spark, tmp_path, "counts", now, broker.bootstrap)


def test_removed_checkpoint_no_longer_exists(tmp_path: Path, spark: SparkSession, broker: Broker) -> None:
    begin(tmp_path, spark, broker, {"0": 3})
    assert checkpoint.exists(spark, tmp_path, "counts")
    checkpoint.remove(spark, tmp_path, "counts")
    assert not checkpoint.exists(spark, tmp_path, "counts")


@pytest.fixture(scope="module", autouse=True)
def clicks(broker: Broker) -> None:
    """A topic of three records whose first two are deleted."""
    create(broker.bootstrap, "clicks")
    produce(broker.bootstrap, "clicks", ["a", "b", "c"])
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    [deleted] = client.delete_records([TopicPartition("clicks", 0, 2)]).values()
    deleted.result()


def begin(
    path: Path, spark: SparkSession, broker: Broker, offsets: dict[str, int] | int, **changes: Any
) -> None:
    """Write the files of a checkpoint as Spark does after a batch."""
    checkpoint.check(spark, path, "counts", replace(SAVED, **changes), broker.bootstrap)
    saved = {"clicks": offsets} if isinstance(offsets, dict) else {}
    for name, text in (("offsets", f"v1\n{{}}\n{json.dumps(saved)}"), ("commits", "v1\n{}")):
        directory = path / "counts" / name
        directory.mkdir()
        (directory / "0").write_text(text)
