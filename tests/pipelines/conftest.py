"""What the tests of pipelines share: one Spark session for all, and a broker for each file."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from millrace.jars import JarsUnavailable, java, spark_kafka_jars
from millrace.pipelines.session import session
from millrace.testing import Broker


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session that takes seconds to start, and is stopped when all tests are through."""
    try:
        java()
        spark_kafka_jars()
    except JarsUnavailable as error:
        pytest.skip(str(error))
    started = session(
        "tests",
        master="local[2]",
        settings={"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"},
    )
    yield started
    started.stop()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """One broker for the tests of a file: they keep apart by topic names."""
    with Broker() as running:
        yield running
