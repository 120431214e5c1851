"""Pipelines on Spark over the log: the only folder that imports PySpark.

    from millrace.pipelines import log, pipeline

    @pipeline(lines=log.text("lines"), output=log.json("words", key="word"))
    def words(lines: DataFrame) -> DataFrame:
        return lines.selectExpr("explode(split(value, ' ')) as word").groupBy("word").count()

`millrace run job.py` runs it.
"""

from millrace.pipelines import log
from millrace.pipelines.errors import PipelineError
from millrace.pipelines.pipeline import Pipeline, pipeline

__all__ = ["Pipeline", "PipelineError", "log", "pipeline"]
