"""Pytest fixtures that come with the package: brokers, a Spark session, and pipelines run on both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

# Pytest imports this module in every project that has millrace installed. It lies outside millrace.testing
# for that reason: the broker and Spark are imported only when a fixture needs them.
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millrace.pipelines import Pipeline
    from millrace.testing.broker import Broker


@pytest.fixture
def millrace_broker() -> Iterator[Broker]:
    """A fresh broker for one test."""
    from millrace.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def millrace_session_broker() -> Iterator[Broker]:
    """One broker for the whole run; tests must use different topic names."""
    from millrace.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def millrace_spark() -> Iterator[SparkSession]:
    """One small Spark session for the whole run: it takes seconds to start."""
    from millrace.testing.pipelines import spark_session

    with spark_session() as spark:
        yield spark


@pytest.fixture
def run_pipeline(millrace_spark: SparkSession, millrace_broker: Broker, tmp_path: Path) -> Callable[..., Any]:
    """`run_pipeline(pipeline, input=[record, ...])`: its output, on the shared session and a fresh broker."""
    from millrace.testing.pipelines import run_pipeline

    def run(pipeline: Pipeline, /, **inputs: Iterable[Any]) -> Any:
        __tracebackhide__ = True
        return run_pipeline(pipeline, millrace_spark, millrace_broker, tmp_path, **inputs)

    return run
