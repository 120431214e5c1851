"""What the tests of pipelines share: one Spark session for all, and a broker for each file."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from millrace.testing import Broker


@pytest.fixture(scope="session")
def spark(millrace_spark: SparkSession) -> SparkSession:
    """The session that all tests share."""
    return millrace_spark


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """One broker for the tests of a file: they keep apart by topic names."""
    with Broker() as running:
        yield running
