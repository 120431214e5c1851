"""Fixtures shared by the tests of all folders."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def millrace_spark() -> Iterator["SparkSession"]:
    """The one Spark session of all tests; without Java, tests that need it are skipped."""
    from millrace.jars import JarsUnavailable, java, spark_kafka_jars
    from millrace.testing.pipelines import spark_session

    try:
        java()
        spark_kafka_jars()
    except JarsUnavailable as error:
        pytest.skip(str(error))
    with spark_session() as spark:
        yield spark
