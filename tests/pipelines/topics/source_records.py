"""Records in the columns of Spark's Kafka source."""

from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

SOURCE = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    " timestampType int, headers array<struct<key:string,value:binary>>"
)
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


def records(spark: SparkSession, *values: Any, keys: tuple[Any, ...] = ()) -> DataFrame:
    """Records with these values, as Spark's Kafka source returns them."""
    rows = []
    for offset, value in enumerate(values):
        raw = value.encode() if isinstance(value, str) else value
        rows.append((keys[offset] if keys else None, raw, "events", 0, offset, NOON, 0, None))
    return spark.createDataFrame(rows, SOURCE)
