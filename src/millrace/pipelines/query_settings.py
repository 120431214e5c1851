"""Spark settings that hold for one query only."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_one_at_a_time = threading.RLock()


@contextmanager
def applied(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Start a query in this block: it keeps the settings of the session as they are at that moment."""
    with _one_at_a_time:
        before: dict[str, str | None] = {key: spark.conf.get(key, None) for key in settings}
        for key, value in settings.items():
            spark.conf.set(key, value)
        try:
            yield
        finally:
            for key, former in before.items():
                if former is None:
                    spark.conf.unset(key)
                else:
                    spark.conf.set(key, former)
