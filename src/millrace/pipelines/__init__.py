"""Pipelines on Spark over the log: the only folder that imports PySpark.

    from millrace.pipelines import log, pipeline

    @pipeline(lines=log.text("lines"), output=log.json("words", key="word"))
    def words(lines: DataFrame) -> DataFrame:
        return lines.selectExpr("explode(split(value, ' ')) as word").groupBy("word").count()

`millrace run job.py` runs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from millrace.pipelines import log
from millrace.pipelines.errors import PipelineError
from millrace.pipelines.pipeline import Pipeline, pipeline

if TYPE_CHECKING:
    from millrace.pipelines.outputs import current
    from millrace.pipelines.spark_session import session
    from millrace.pipelines.views import View

__all__ = ["Pipeline", "PipelineError", "View", "current", "log", "pipeline", "session"]


# Declaring a pipeline should not take the time that Spark takes to import.
_LATER = {"View": "views", "current": "outputs", "session": "spark_session"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
