"""Spark settings of one query only."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_lock = threading.RLock()


@contextmanager
def applied(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Apply settings to the session during the block. A query that starts in it keeps them."""
    with _lock:
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
