"""Fixtures and options of all tests."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# `make test` has the same examples in every run of a commit; `make proof` draws others each time.
settings.register_profile("repeatable", derandomize=True)
settings.register_profile("random", derandomize=False)
settings.load_profile("repeatable")

# Long tests, run only on request: `make soak` and `make proof`.
ON_REQUEST = ("soak", "proof")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests that use Spark; deselect long tests unless the option -m names their marker."""
    for item in items:
        if "millrace_spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
    unwanted = {marker for marker in ON_REQUEST if marker not in config.option.markexpr}
    deselected = [item for item in items if any(item.get_closest_marker(marker) for marker in unwanted)]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        unwanted_items = set(deselected)
        items[:] = [item for item in items if item not in unwanted_items]


@pytest.fixture(scope="session")
def millrace_spark() -> Iterator["SparkSession"]:
    """The Spark session that all tests share; tests that need it are skipped if there is no Java."""
    from millrace.jars import JarsUnavailable, java, spark_kafka_jars
    from millrace.testing.pipelines import spark_session

    try:
        java()
        spark_kafka_jars()
    except JarsUnavailable as error:
        pytest.skip(str(error))
    with spark_session() as spark:
        yield spark
