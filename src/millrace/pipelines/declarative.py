"""Projects of Spark's own declarative pipelines, with the log as their source and sink.

A project is what `spark-pipelines init` makes: a `spark-pipeline.yml` and, beside it, Python and SQL files
that define tables, views, flows and sinks. `run_project` runs it as `spark-pipelines run` does, with the
Kafka connector and our settings in place. Its files need nothing of ours: the log's address is the setting
`spark.millrace.bootstrap`. What is here for them makes it shorter:

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

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from millrace.pipelines import codecs, reading, writing
from millrace.pipelines.errors import PipelineError
from millrace.pipelines.log import LogTopic, Start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["batch", "bootstrap", "encode", "find_project", "run_project", "sink_options", "stream"]

T = TypeVar("T")

SPEC_NAMES = ("spark-pipeline.yml", "spark-pipeline.yaml")
BOOTSTRAP_SETTING = "spark.millrace.bootstrap"
INTERRUPTED = 130


def find_project(path: str | Path) -> Path | None:
    """The spec of the project that a path means: the spec itself, or the directory that holds it."""
    given = Path(path)
    if given.suffix in (".yml", ".yaml"):
        return given
    found = [given / name for name in SPEC_NAMES if (given / name).is_file()]
    if len(found) > 1:
        raise PipelineError(f"{given} has a {' and a '.join(SPEC_NAMES)}; remove one, or name the one to run")
    return found[0] if found else None


def run_project(
    spec: Path,
    *,
    bootstrap: str,
    master: str | None = None,
    dry_run: bool = False,
    full_refresh: Sequence[str] = (),
    full_refresh_all: bool = False,
    refresh: Sequence[str] = (),
    conf: Mapping[str, str] | None = None,
) -> int:
    """Bring the project's datasets and sinks up to date with what the log holds now; the process's exit code.

    `dry_run` only checks that the graph fits together. `refresh` names the datasets to bring up to date if
    not all, `full_refresh` those to empty and fill anew. `conf` are Spark's settings; the project's own
    `configuration` goes before them.
    """
    if not spec.is_file():
        raise PipelineError(f"{spec} is not there; give a spark-pipeline.yml or the directory that holds it")
    if full_refresh_all and (full_refresh or refresh):
        raise PipelineError("a full refresh of all leaves nothing to select; drop the names, or the all")
    if dry_run and (full_refresh_all or full_refresh or refresh):
        raise PipelineError("a dry run refreshes nothing; drop it, or the selection of what to refresh")
    order = {
        "spec": str(spec.absolute()),
        "bootstrap": bootstrap,
        "master": master,
        "dry_run": dry_run,
        "full_refresh": list(full_refresh),
        "full_refresh_all": full_refresh_all,
        "refresh": list(refresh),
        "conf": dict(conf or {}),
    }
    return _run_apart(json.dumps(order).encode())


def stream(topic: LogTopic) -> DataFrame:
    """In a definition: a topic's records as they come, for a streaming table or a flow."""
    from pyspark.sql import SparkSession

    spark, address = SparkSession.active(), bootstrap()
    return _elsewhere(lambda: reading.stream(spark, topic, address))


def batch(topic: LogTopic, *, start: Start | None = None, end: Start | None = None) -> DataFrame:
    """In a definition: a topic's records as far as they go now, for a materialized view."""
    from pyspark.sql import SparkSession

    spark, address = SparkSession.active(), bootstrap()
    return _elsewhere(lambda: reading.batch(spark, topic, address, start=start, end=end))


def sink_options(topic: LogTopic) -> dict[str, str]:
    """In a definition: the options of a `kafka` sink; its flows return what `encode` makes for the topic."""
    return writing.sink_options(topic, bootstrap())


def encode(frame: DataFrame, topic: LogTopic) -> DataFrame:
    """In a definition: what a `kafka` sink writes, from a flow's columns.

    A definition's columns are not known while it is made, so that less is checked than for other pipelines: a
    key is written as its text, and headers have to be Spark's own array of keys and values.
    """
    from pyspark.sql import functions as F

    columns = [F.lit(topic.name).alias("topic")]
    if topic.format == "json":
        apart = ", ".join(_quoted(name) for name in (topic.headers, topic.partition) if name)
        everything = F.expr(f"struct(* EXCEPT ({apart}))" if apart else "struct(*)")
        columns.append(F.to_json(everything, codecs.JSON_WRITING).alias("value"))
    else:
        columns.append(F.col("value"))
    if topic.key is not None:
        columns.append(F.col(_quoted(topic.key)).cast("string").alias("key"))
    if topic.headers is not None:
        columns.append(F.col(_quoted(topic.headers)).cast(codecs.HEADERS).alias("headers"))
    if topic.partition is not None:
        columns.append(F.col(_quoted(topic.partition)).cast("int").alias("partition"))
    return frame.select(*columns)


def bootstrap() -> str:
    """In a definition: the log's address."""
    from pyspark.sql import SparkSession

    found = SparkSession.active().conf.get(BOOTSTRAP_SETTING, None)
    if found is None:
        raise PipelineError(
            f"where the log is, is not set; run the project with `millrace run`, or set {BOOTSTRAP_SETTING}"
        )
    return found


def _elsewhere(call: Callable[[], T]) -> T:
    """Call on another thread: on a definition's own, Spark takes no questions, such as what a schema says."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _run_apart(order: bytes) -> int:
    """Run in another process: these pipelines need Spark Connect, which a process has wholly or not."""
    answer, answer_end = os.pipe()
    command = [sys.executable, "-m", "millrace.pipelines.declarative_process", str(answer_end)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[answer_end])
    os.close(answer_end)
    with process, os.fdopen(answer) as said:
        assert process.stdin is not None
        # What is left open tells the process that this one is alive.
        process.stdin.write(order + b"\n")
        process.stdin.flush()
        try:
            code = process.wait()
        except KeyboardInterrupt:
            # Ctrl-C went to both; let it end what it has started.
            process.wait()
            return INTERRUPTED
        error = said.read()
    if error:
        raise PipelineError(error)
    return INTERRUPTED if code == -signal.SIGINT else code
