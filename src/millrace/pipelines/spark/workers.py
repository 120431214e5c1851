"""Python workers of Spark: the code they can import, and their task number."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def share_imports(spark: SparkSession) -> None:
    """Let workers on this machine import everything that this process can import."""
    paths = [path for path in sys.path if path and Path(path).is_dir()]
    spark.sparkContext.environment["PYTHONPATH"] = os.pathsep.join(paths)


def pickle_by_value(module_name: str) -> None:
    """Pickle the functions of a module with their code, because workers may not have the module."""
    from pyspark.cloudpickle import register_pickle_by_value

    module = sys.modules.get(module_name)
    if module is not None and "site-packages" not in (getattr(module, "__file__", None) or ""):
        register_pickle_by_value(module)


def task_number() -> int:
    """The number of the current task within its stage. Call it in a worker."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "only a task has a number"
    return context.partitionId()
