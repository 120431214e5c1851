"""Progress of a declarative project's flows, from checkpoints as Spark writes them."""

from pathlib import Path
from unittest.mock import create_autospec

from pyspark.sql import SparkSession

from millrace.pipelines.declarative import flow_progress
from millrace.pipelines.kafka import offsets
from millrace.pipelines.kafka.topic_admin import ensure
from millrace.pipelines.spark.directory import Directory
from millrace.testing import Broker


def checkpoint(place: Path, batches: list[str], complete: int) -> None:
    for name in ("offsets", "commits"):
        (place / name).mkdir(parents=True)
    for number, source in enumerate(batches):
        (place / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{source}')
        (place / "offsets" / f".{number}.crc").touch()
    for number in range(complete):
        (place / "commits" / str(number)).write_text("v1\n{}")


def test_flows_commit_the_end_of_their_last_complete_batch(tmp_path: Path, broker: Broker) -> None:
    ensure("clicks", broker.bootstrap, partitions=2)
    of_table = tmp_path / "_checkpoints" / "spark_catalog" / "default" / "visits" / "read_clicks"
    checkpoint(of_table / "0", ['{"clicks":{"0":900,"1":900}}'], complete=1)
    batches = ['{"clicks":{"0":1,"1":2}}', '{"clicks":{"0":3,"1":4}}', '{"clicks":{"0":5,"1":6}}']
    checkpoint(of_table / "1", batches, complete=2)
    checkpoint(tmp_path / "_checkpoints" / "large" / "from_a_table" / "0", ['{"logOffset":0}'], complete=1)
    storage = Directory(create_autospec(SparkSession), tmp_path)
    assert list(flow_progress.flows(storage)) == [("read_clicks", {"clicks": {0: 3, 1: 4}})]
    flow_progress.commit(storage, "shop", broker.bootstrap)
    reached = offsets.group_offsets(broker.bootstrap, "shop.read_clicks", ["clicks"])
    assert reached == {"clicks": {0: 3, 1: 4}}


def test_project_that_has_not_run_has_no_progress(tmp_path: Path) -> None:
    assert list(flow_progress.flows(Directory(create_autospec(SparkSession), tmp_path))) == []
