"""Code on its way to Spark's Python workers, and where it finds itself there."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def share_imports(spark: SparkSession) -> None:
    """Let workers on this machine import whatever this process can."""
    paths = [path for path in sys.path if path and Path(path).is_dir()]
    spark.sparkContext.environment["PYTHONPATH"] = os.pathsep.join(paths)


def send_whole(module_name: str) -> None:
    """Let functions of a module travel with their code: workers may have no module of that name."""
    from pyspark.cloudpickle import register_pickle_by_value

    module = sys.modules.get(module_name)
    if module is not None and "site-packages" not in (getattr(module, "__file__", None) or ""):
        register_pickle_by_value(module)


def task_number() -> int:
    """In a worker: which of the tasks of its stage this is."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "only a task has a number"
    return context.partitionId()
