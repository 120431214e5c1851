"""Pytest fixtures that come with the package: brokers, a Spark session, and pipelines run on both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

# Pytest imports this in every project that has millrace installed, and it lies outside millrace.testing for
# that reason: the broker and Spark come only when asked for.
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
    """One broker for the whole run: the tests keep apart by topic names."""
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
