"""Starts the JVM that Spark runs in, without what it says on every start."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from millrace.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

# Said by every JVM that Spark starts, and nothing a user could act on.
USUAL = ("WARNING: Using incubator modules",)


def launch(conf: SparkConf) -> Any:
    """PySpark's gateway to a new JVM, whose errors come through this process's stderr."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    reading, writing = os.pipe()
    told: deque[str] = deque(maxlen=20)
    relay = threading.Thread(target=_relay, args=(reading, told), name="spark-stderr", daemon=True)
    relay.start()
    try:
        return launch_gateway(conf, popen_kwargs={"stderr": writing})
    except PySparkRuntimeError as error:
        os.close(writing)
        writing = -1
        relay.join(5)
        reason = next((line for line in reversed(told) if line.strip()), "it gave no reason")
        raise PipelineError(
            f"Spark did not start ({reason.strip()}); `millrace doctor` checks Java and Spark"
        ) from error
    finally:
        if writing >= 0:
            os.close(writing)


def _relay(reading: int, told: deque[str]) -> None:
    """Pass on lines as they come; Python's stderr is looked up each time, so that it may be redirected."""
    with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.startswith(USUAL):
                told.append(line)
                sys.stderr.write(line)
                sys.stderr.flush()


def jvm(spark: SparkSession) -> Any:
    """Spark's own classes, by their full names."""
    return spark._jvm
