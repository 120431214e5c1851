"""Starts the JVM that Spark runs in, and filters the noise that it prints on every start."""

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

# Printed by every JVM that Spark starts; the user cannot act on it.
NOISE = ("WARNING: Using incubator modules",)


def launch(conf: SparkConf) -> Any:
    """Start a JVM and return PySpark's gateway to it. Its stderr goes to the stderr of this process."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    read_end, write_end = os.pipe()
    last_lines: deque[str] = deque(maxlen=20)
    relay = threading.Thread(target=_relay, args=(read_end, last_lines), name="spark-stderr", daemon=True)
    relay.start()
    try:
        return launch_gateway(conf, popen_kwargs={"stderr": write_end})
    except PySparkRuntimeError as error:
        os.close(write_end)
        write_end = -1
        relay.join(5)
        reason = next((line for line in reversed(last_lines) if line.strip()), "it gave no reason")
        raise PipelineError(
            f"Spark did not start ({reason.strip()}); `millrace doctor` checks Java and Spark"
        ) from error
    finally:
        if write_end >= 0:
            os.close(write_end)


def _relay(read_end: int, last_lines: deque[str]) -> None:
    """Pass lines on as they come. `sys.stderr` is looked up for each line, because it may be redirected."""
    with os.fdopen(read_end, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.startswith(NOISE):
                last_lines.append(line)
                sys.stderr.write(line)
                sys.stderr.flush()


def jvm(spark: SparkSession) -> Any:
    """Java classes by their full names."""
    return spark._jvm
