"""Projects of Spark's declarative pipelines on a real broker; each run starts its own Spark."""

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

from ... import jvm

EXAMPLE = Path(__file__).parents[3] / "examples" / "declarative"
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


def run_command(project: Path, bootstrap: str, *options: str) -> None:
    """Run the project with `millrace run`."""
    small = [part for name, value in SMALL.items() for part in ("--conf", f"{name}={value}")]
    arguments = ["run", str(project), "--bootstrap-server", bootstrap, *small]
    done = CliRunner().invoke(millrace, [*arguments, *options])
    assert done.exit_code == 0, done.output


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_example_fills_its_tables_and_its_sink_and_the_next_run_continues(project: Path) -> None:
    with Broker() as broker:
        order(broker.bootstrap, [("ada", 10.0), ("ada", 2000.0), ("bob", 5.0)])
        assert run_project(project, bootstrap=broker.bootstrap, conf=SMALL) == 0
        assert revenue(project) == {"ada": 2010.0, "bob": 5.0}
        order(broker.bootstrap, [("bob", 1000.0)])
        run_command(project, broker.bootstrap)
        assert revenue(project) == {"ada": 2010.0, "bob": 1005.0}
        assert offsets.group_offsets(broker.bootstrap, "orders.orders", ["orders"]) == {"orders": {0: 4}}
        assert large_orders(broker.bootstrap) == [("ada", 2000.0), ("bob", 1000.0)]


@pytest.mark.proof
@pytest.mark.timeout(300)
def test_full_refresh_rebuilds_the_tables_from_what_the_log_holds_now(project: Path) -> None:
    with Broker() as broker:
        order(broker.bootstrap, [("ada", 10.0), ("ada", 2000.0), ("bob", 5.0), ("bob", 1000.0)])
        assert run_project(project, bootstrap=broker.bootstrap, conf=SMALL) == 0
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for deleted in admin.delete_records([TopicPartition("orders", 0, 2)]).values():
            deleted.result(10)
        run_command(project, broker.bootstrap, "--full-refresh-all")
        assert revenue(project) == {"bob": 1005.0}


@pytest.mark.proof
@pytest.mark.timeout(300)
def test_dry_run_reports_an_error_and_writes_nothing(project: Path) -> None:
    wrong = project.parent / "transformations" / "revenue.sql"
    wrong.write_text("CREATE MATERIALIZED VIEW revenue AS SELECT client FROM orders;")
    with Broker() as broker:
        order(broker.bootstrap, [("ada", 2000.0)])
        with pytest.raises(PipelineError, match="client"):
            run_project(project, bootstrap=broker.bootstrap, dry_run=True, conf=SMALL)
    assert not (project.parent / "pipeline-storage" / "warehouse" / "orders").exists()


def test_project_is_a_spec_or_its_directory(tmp_path: Path, project: Path) -> None:
    assert find_project(project) == project
    assert find_project(project.parent) == project
    assert find_project(tmp_path) is None
    assert find_project("job.py") is None
    (project.parent / "spark-pipeline.yaml").touch()
    with pytest.raises(PipelineError, match="remove one"):
        find_project(project.parent)


def test_contradicting_options_are_refused_before_spark_starts(tmp_path: Path, project: Path) -> None:
    with pytest.raises(PipelineError, match="does not exist; give a spark-pipeline"):
        run_project(tmp_path / "spark-pipeline.yml", bootstrap="localhost:9092")
    with pytest.raises(PipelineError, match="a full refresh of everything takes no names"):
        run_project(project, bootstrap="localhost:9092", full_refresh_all=True, refresh=["orders"])
    with pytest.raises(PipelineError, match="a dry run refreshes nothing"):
        run_project(project, bootstrap="localhost:9092", dry_run=True, full_refresh=["orders"])


def test_invalid_spec_is_named_with_the_reason(project: Path) -> None:
    project.write_text("name: orders\nstorage: here\nshape: round\n")
    with pytest.raises(PipelineError, match=r"spark-pipeline.yml is not a spec that Spark accepts: .*shape"):
        run_project(project, bootstrap="localhost:9092")
