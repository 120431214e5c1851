"""Runs streams over rows: one batch, without a log."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.pipelines import log
from millrace.pipelines.spark import workers
from millrace.trident import Stream, TridentTopology
from millrace.trident.spark.batch_plan import BatchPlan
from millrace.trident.state import MapState, Transaction

SCHEMA = "word string, count bigint, price double"
Rows = Sequence[Sequence[Any]]


@pytest.fixture(scope="session")
def spark(millrace_spark: SparkSession) -> SparkSession:
    workers.share_imports(millrace_spark)
    return millrace_spark


@pytest.fixture(autouse=True, scope="module")
def functions_of_the_test_are_shipped(request: pytest.FixtureRequest) -> None:
    workers.pickle_by_value(request.module.__name__)


class OneBatch:
    """A topology whose sources are rows."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.topology = TridentTopology("test")
        self.states: dict[str, MapState] = {}
        self._rows: dict[str, Any] = {}
        self.bootstrap = ""

    def stream(self, rows: Rows, name: str = "rows", schema: str = SCHEMA, partitions: int = 2) -> Stream:
        frame = self._spark.createDataFrame([tuple(row) for row in rows], schema)
        self._rows[name] = frame.repartition(partitions) if partitions > 1 else frame.coalesce(1)
        return self.topology.new_stream(name, log.json(name, schema))

    def run(
        self, stream: Stream, batch: int = 0, rows: Mapping[str, Rows] | None = None
    ) -> list[tuple[Any, ...]]:
        """The tuples of a stream after one batch."""
        for name, given in (rows or {}).items():
            self._rows[name] = self._spark.createDataFrame([tuple(row) for row in given], SCHEMA).coalesce(1)
        plan = BatchPlan(
            self._rows,
            [stream.node],
            batch,
            bootstrap=self.bootstrap,
            states=self.states,
            transactions={name: Transaction(0, batch) for name in self.states},
        )
        try:
            return [tuple(row) for row in plan.frame(stream.node).collect()]
        finally:
            plan.close()


@pytest.fixture
def one_batch(spark: SparkSession) -> Callable[[], OneBatch]:
    return lambda: OneBatch(spark)
