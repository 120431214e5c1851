"""The jobs of both sides: as pipelines of millrace, and by hand as in PySpark's documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millrace.pipelines import Pipeline, log, pipeline
from millrace.pipelines.decorator import Delivery, Mode

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow
    from pyspark.sql import DataFrame

STATELESS, PYTHON, AGGREGATION = "stateless", "python", "aggregation"


def transformed(job: str, values: DataFrame) -> DataFrame:
    """A job over a text column called `value`; its output contains the input text."""
    if job == PYTHON:
        return values.mapInArrow(_upper, "value string")
    if job == AGGREGATION:
        return values.groupBy("value").count().selectExpr("concat(value, '=', count) as value")
    return values.selectExpr("upper(value) as value")


def _upper(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow
    import pyarrow.compute

    for batch in batches:
        yield pyarrow.record_batch([pyarrow.compute.utf8_upper(batch.column(0))], names=["value"])


def declared(
    job: str, source: str, target: str, *, mode: Mode = "auto", delivery: Delivery = "at-least-once"
) -> Pipeline:
    """The job as a pipeline."""

    @pipeline(
        name=f"{target}-{mode}",
        values=log.text(source),
        output=log.text(target),
        mode=mode,
        delivery=delivery,
    )
    def declared(values: DataFrame) -> DataFrame:
        return transformed(job, values)

    return declared


def by_hand(spark: Any, bootstrap: str, job: str, source: str, target: str, checkpoint: str) -> Any:
    """The same job as in PySpark's guide to Kafka, not started yet, with required options only."""
    values = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("CAST(value AS STRING) AS value")
    )
    return (
        transformed(job, values)
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .outputMode("update" if job == AGGREGATION else "append")
    )
