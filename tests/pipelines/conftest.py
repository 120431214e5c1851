"""Fixtures of the pipeline tests: one Spark session for all, and one broker per file."""

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

from millrace.testing import Broker

from .log_client import create


@pytest.fixture(scope="session")
def spark(millrace_spark: SparkSession) -> SparkSession:
    """The Spark session that all tests share."""
    return millrace_spark


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """One broker for the tests of a file, which use different topics."""
    with Broker() as running:
        yield running


@pytest.fixture(scope="module")
def frames(spark: SparkSession, broker: Broker) -> dict[str, DataFrame]:
    """Two topics as streams, and a small table."""
    create(broker.bootstrap, "clicks", "views")
    options = {"kafka.bootstrap.servers": broker.bootstrap}

    def stream(topic: str) -> DataFrame:
        source = spark.readStream.format("kafka").options(**options, subscribe=topic).load()
        return source.selectExpr(
            "cast(key as string) as user", "cast(value as string) as page", "timestamp as at"
        )

    users = spark.createDataFrame([("anna", 1)], "user string, level int")
    return {"clicks": stream("clicks"), "views": stream("views"), "users": users}
