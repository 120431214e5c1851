"""Projects of Spark's declarative pipelines over a real broker; each run is a Spark of its own."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from millrace.cli import millrace
from millrace.pipelines.declarative.project import find_project, run_project
from millrace.pipelines.errors import PipelineError
from millrace.pipelines.kafka import offsets
from millrace.testing import Broker

from .. import jvm

EXAMPLE = Path(__file__).parents[2] / "examples" / "declarative"
SMALL = {"spark.driver.memory": "1g", **jvm.SPARK}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "orders")) / "spark-pipeline.yml"


def order(bootstrap: str, amounts: Iterable[tuple[str, float]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, (customer, amount) in enumerate(amounts):
        placed = {"number": number, "customer": customer, "amount": amount, "at": "2026-11-16T08:00:00Z"}
        producer.produce("orders", json.dumps(placed))
    assert producer.flush(10) == 0


def large_orders(bootstrap: str) -> list[tuple[str, float]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe(["large-orders"])
    found = []
    while (message := consumer.poll(20)) is not None and message.error() is None:
        found.append((message.key().decode(), json.loads(message.value())["amount"]))
    consumer.close()
    return found


def revenue(project: Path) -> dict[str, float]:
    rows = pyarrow.parquet.read_table(
        project.parent / "pipeline-storage" / "warehouse" / "revenue"
    ).to_pylist()
    return {row["customer"]: row["revenue"] for row in rows}


@pytest.mark.timeout(300)
def test_the_example_fills_its_tables_and_its_sink_goes_on_from_there_and_begins_anew(
    project: Path,
) -> None:
    with Broker() as broker:
        order(broker.bootstrap, [("ada", 10.0), ("ada", 2000.0), ("bob", 5.0)])
        assert run_project(project, bootstrap=broker.bootstrap, conf=SMALL) == 0
        assert revenue(project) == {"ada": 2010.0, "bob": 5.0}
        order(broker.bootstrap, [("bob", 1000.0)])
        assert run_project(project, bootstrap=broker.bootstrap, conf=SMALL) == 0
        assert revenue(project) == {"ada": 2010.0, "bob": 1005.0}
        assert offsets.group_offsets(broker.bootstrap, "orders.orders", ["orders"]) == {"orders": {0: 4}}
        assert large_orders(broker.bootstrap) == [("ada", 2000.0), ("bob", 1000.0)]

        # Emptied and filled anew, the tables hold what the log holds by now.
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for deleted in admin.delete_records([TopicPartition("orders", 0, 2)]).values():
            deleted.result(10)
        small = [part for name, value in SMALL.items() for part in ("--conf", f"{name}={value}")]
        arguments = ["run", str(project), "--bootstrap-server", broker.bootstrap, *small]
        done = CliRunner().invoke(millrace, [*arguments, "--full-refresh-all"])
        assert done.exit_code == 0, done.output
        assert revenue(project) == {"bob": 1005.0}


@pytest.mark.timeout(300)
def test_a_dry_run_says_what_does_not_fit_and_writes_nothing(project: Path) -> None:
    wrong = project.parent / "transformations" / "revenue.sql"
    wrong.write_text("CREATE MATERIALIZED VIEW revenue AS SELECT client FROM orders;")
    with Broker() as broker:
        order(broker.bootstrap, [("ada", 2000.0)])
        with pytest.raises(PipelineError, match="client"):
            run_project(project, bootstrap=broker.bootstrap, dry_run=True, conf=SMALL)
    assert not (project.parent / "pipeline-storage" / "warehouse" / "orders").exists()


def test_a_project_is_a_spec_or_the_directory_that_holds_one(tmp_path: Path, project: Path) -> None:
    assert find_project(project) == project
    assert find_project(project.parent) == project
    assert find_project(tmp_path) is None
    assert find_project("job.py") is None
    (project.parent / "spark-pipeline.yaml").touch()
    with pytest.raises(PipelineError, match="remove one"):
        find_project(project.parent)


def test_what_cannot_be_meant_is_refused_before_spark_starts(tmp_path: Path, project: Path) -> None:
    with pytest.raises(PipelineError, match="does not exist; give a spark-pipeline"):
        run_project(tmp_path / "spark-pipeline.yml", bootstrap="localhost:9092")
    with pytest.raises(PipelineError, match="a full refresh of everything takes no names"):
        run_project(project, bootstrap="localhost:9092", full_refresh_all=True, refresh=["orders"])
    with pytest.raises(PipelineError, match="a dry run refreshes nothing"):
        run_project(project, bootstrap="localhost:9092", dry_run=True, full_refresh=["orders"])


def test_a_spec_that_spark_refuses_is_named_with_the_reason(project: Path) -> None:
    project.write_text("name: orders\nstorage: here\nshape: round\n")
    with pytest.raises(PipelineError, match=r"spark-pipeline.yml is not a spec that Spark accepts: .*shape"):
        run_project(project, bootstrap="localhost:9092")
