"""The old signature of `Run`, with options as keywords, for one release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millrace.pipelines.decorator import Pipeline
from millrace.pipelines.run.lifecycle import Run
from millrace.pipelines.run.options import RunOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class OldRun(Run):
    """`Run(pipeline, spark, bootstrap, checkpoints=..., available_now=...)`."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession, bootstrap: str, **options: Any) -> None:
        given = {name: value for name, value in options.items() if value is not None}
        super().__init__(pipeline, spark, bootstrap, RunOptions(**given))
