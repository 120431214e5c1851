"""What tests of all folders share."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def millrace_spark() -> Iterator["SparkSession"]:
    """The one Spark session of all tests; those who need it are skipped where there is no Java for it."""
    from millrace.jars import JarsUnavailable, java, spark_kafka_jars
    from millrace.testing.pipelines import spark_session

    try:
        java()
        spark_kafka_jars()
    except JarsUnavailable as error:
        pytest.skip(str(error))
    with spark_session() as spark:
        yield spark
