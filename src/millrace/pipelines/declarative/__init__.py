"""Projects of Spark's own declarative pipelines, with the log as their source and sink.

A project is what `spark-pipelines init` creates: a `spark-pipeline.yml`, and Python and SQL files next to it
that define tables, views, flows and sinks. `millrace run` runs it as `spark-pipelines run` does, with the
Kafka connector and our settings. The files of a project need nothing from millrace: the address of the log is
the setting `spark.millrace.bootstrap`. These functions make them shorter:

    from pyspark import pipelines as dp
    from millrace.pipelines import declarative, log

    LINES, WORDS = log.text("lines"), log.json("words", key="word")

    @dp.table
    def lines() -> DataFrame:
        return declarative.stream(LINES)

    dp.create_sink("words", "kafka", declarative.sink_options(WORDS))

    @dp.append_flow(target="words")
    def split_words() -> DataFrame:
        return declarative.encode(spark.readStream.table("lines").selectExpr("..."), WORDS)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from millrace.pipelines import old_names

if TYPE_CHECKING:
    from millrace.pipelines.declarative.definitions import batch, bootstrap, encode, sink_options, stream

__all__ = ["batch", "bootstrap", "encode", "sink_options", "stream"]

_old_name = old_names.attributes("declarative")


def __getattr__(name: str) -> Any:
    # Imported on first use: finding a project must not cost the import of PySpark.
    if name in __all__:
        return getattr(import_module(f"{__name__}.definitions"), name)
    return _old_name(name)
