"""Pipelines on Spark over the log: the only folder that imports PySpark.

    from millrace.pipelines import log, pipeline

    @pipeline(lines=log.text("lines"), output=log.json("words", key="word"))
    def words(lines: DataFrame) -> DataFrame:
        return lines.selectExpr("explode(split(value, ' ')) as word").groupBy("word").count()

`millrace run job.py` runs it.
"""

from typing import TYPE_CHECKING, Any

from millrace.pipelines import log
from millrace.pipelines.errors import PipelineError
from millrace.pipelines.pipeline import Pipeline, pipeline

if TYPE_CHECKING:
    from millrace.pipelines.outputs import current
    from millrace.pipelines.session import session
    from millrace.pipelines.views import View

__all__ = ["Pipeline", "PipelineError", "View", "current", "log", "pipeline", "session"]


def __getattr__(name: str) -> Any:
    # Declaring a pipeline should not take the time that Spark takes to import.
    if name == "session":
        from millrace.pipelines.session import session

        return session
    if name == "current":
        from millrace.pipelines.outputs import current

        return current
    if name == "View":
        from millrace.pipelines.views import View

        return View
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
