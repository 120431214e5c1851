"""Pipelines on Spark over the log. Only this package imports PySpark.

    from millrace.pipelines import log, pipeline

    @pipeline(lines=log.text("lines"), output=log.json("words", key="word"))
    def words(lines: DataFrame) -> DataFrame:
        return lines.selectExpr("explode(split(value, ' ')) as word").groupBy("word").count()

`millrace run job.py` runs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from millrace.pipelines import old_names
from millrace.pipelines.decorator import Pipeline, pipeline
from millrace.pipelines.errors import PipelineError
from millrace.pipelines.topics import declaration as log
from millrace.pipelines.topics.declaration import LogTopic

if TYPE_CHECKING:
    from millrace.pipelines.replay.output_pointer import current
    from millrace.pipelines.run.lifecycle import Run
    from millrace.pipelines.run.options import RunOptions
    from millrace.pipelines.spark.session import session
    from millrace.pipelines.topics import reading
    from millrace.pipelines.views.view import View

__all__ = [
    "LogTopic",
    "Pipeline",
    "PipelineError",
    "Run",
    "RunOptions",
    "View",
    "current",
    "log",
    "pipeline",
    "reading",
    "session",
]

# Imported on first use: declaring a pipeline must not cost the import of PySpark.
_LAZY = {
    "Run": ("run.lifecycle", "Run"),
    "RunOptions": ("run.options", "RunOptions"),
    "View": ("views.view", "View"),
    "current": ("replay.output_pointer", "current"),
    "session": ("spark.session", "session"),
}


def __getattr__(name: str) -> Any:
    if name == "reading":
        return import_module(f"{__name__}.topics.reading")
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LAZY[name]
    return getattr(import_module(f"{__name__}.{module}"), attribute)


old_names.install()
