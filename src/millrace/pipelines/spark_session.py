"""A Spark session that is right for the log: its connector, the workers' Python, settings for short batches.

On this machine nothing else is needed. On a cluster the executors run the same Python code, so there

- each machine has this Python version, with millrace (it brings confluent-kafka) and what your pipelines
  import, under the path of this interpreter; or PYSPARK_PYTHON names the interpreter to use instead, such as
  that of an environment shipped with the setting `spark.archives`;
- modules that lie beside your script, rather than being installed, are on PYTHONPATH (it is handed on to the
  executors), or are shipped with the setting `spark.submit.pyFiles`;
- checkpoints are in a place that all machines reach.

The connector's jars are sent to the executors by Spark itself.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace import jars
from millrace.pipelines import gateway
from millrace.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER_VARIABLE = "MILLRACE_MASTER"
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

# Options of Spark's Kafka source. An executor's consumer goes on fetching when its batch is complete; with
# Kafka's default the next batch waits up to 500 ms for that parked fetch.
CONSUMER_OPTIONS: Mapping[str, str] = {"kafka.fetch.max.wait.ms": "10"}

# What every session gets, wherever it runs; a user's own settings go before these.
SETTINGS: Mapping[str, str] = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A batch that is run again after a crash must have the same tasks: the exactly-once sink counts on it.
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "true",
    # The only one that stateful Python functions (transformWithState) run on; state lies outside the heap,
    # and with a change log a batch writes down what changed, not all there is.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}

# Without its native library Hadoop forks a `chmod` for every file that it writes, and a checkpoint is many
# small files: that takes longer than all else in a short batch. This file system sets permissions by itself.
LOCAL_FILES_JAR = "hadoop-bare-naked-local-fs"
LOCAL_FILES: Mapping[str, str] = {
    "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
    # The one that goes through this file system; like Spark's usual one it writes aside and renames.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}

# Settings that hold a list, to which a user's are added.
JOINED: Mapping[str, str] = {
    "spark.jars": ",",
    "spark.driver.extraJavaOptions": " ",
    "spark.driver.extraClassPath": os.pathsep,
}


def session(
    app_name: str = "millrace",
    *,
    master: str | None = None,
    slots: int | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """The Spark session for pipelines, started now or already running with what is asked for.

    `master` is any Spark master; without it MILLRACE_MASTER is taken, and without that this machine.
    `slots` is how many tasks must be able to run at once, which matters in real-time mode.
    `settings` are Spark's own, and go before ours.
    """
    _require_pyspark()
    asked = dict(settings or {})
    master = master or asked.pop("spark.master", None) or os.environ.get(MASTER_VARIABLE)
    asked.pop("spark.master", None)
    if (running := _running_session(master, slots, asked)) is not None:
        return running
    require_java()
    master = master or local_master(slots)
    ours = {"spark.app.name": app_name, **_defaults(master, _jars())}
    wanted = {**ours, **asked, "spark.master": master}
    for key, separator in JOINED.items():
        # Ours comes first: of two Java options of a name the later one counts.
        if joined := separator.join(filter(None, [ours.get(key), asked.get(key)])):
            wanted[key] = joined
    _choose_python(master, asked)

    from py4j.protocol import Py4JJavaError
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    conf = SparkConf().setAll(list(wanted.items()))
    if SparkContext._gateway is None:
        _Launched.gateway = gateway.launch(conf)
    elif SparkContext._gateway is not _Launched.gateway:
        raise PipelineError(
            "a Spark session without the Kafka connector ran in this process, and its JVM cannot load it now;"
            " start the session with millrace.pipelines.session first, or use a new process"
        )
    try:
        SparkContext(conf=conf, gateway=_Launched.gateway)
    except Py4JJavaError as error:
        reason = str(error.java_exception.getMessage()).splitlines()[0]
        raise PipelineError(
            f"Spark did not start on {master}: {reason}; correct --master or --conf"
        ) from error
    return SparkSession.builder.config(conf=conf).getOrCreate()


def is_running() -> bool:
    """Whether this process has a Spark session already; there can be only one."""
    _require_pyspark()
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


class _Launched:
    """The JVM that was started here, with the connector; it outlives the session."""

    gateway: Any = None


def local_master(slots: int | None = None) -> str:
    """This machine, with a task slot per core, and more where a query needs them."""
    return f"local[{max(slots or 1, cores())}]"


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def require_java() -> Path:
    """The Java launcher that Spark will take, if it is new enough."""
    home = os.environ.get("JAVA_HOME")
    if home and not (Path(home) / "bin" / "java").exists():
        raise PipelineError(f"JAVA_HOME is {home}, which has no bin/java; point it at a JDK 17 or unset it")
    try:
        launcher = jars.java()
    except jars.JarsUnavailable as error:
        raise PipelineError(f"Spark needs Java: {error}") from error
    version = jars.java_version(launcher)
    if version is None or version.major < jars.OLDEST_JAVA:
        which = version or "of unknown version"
        raise PipelineError(
            f"Spark needs Java {jars.OLDEST_JAVA} or newer, and {launcher} is {which};"
            " install a newer JDK, or point JAVA_HOME at one"
        )
    return launcher


def _require_pyspark() -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise PipelineError("pipelines run on PySpark, which is not installed: pip install 'millrace[spark]'")


def _jars() -> list[str]:
    try:
        return list(map(str, jars.spark_kafka_jars()))
    except jars.JarsUnavailable as error:
        raise PipelineError(f"Spark's Kafka connector is fetched on first use: {error}") from error


def _running_session(master: str | None, slots: int | None, asked: Mapping[str, str]) -> SparkSession | None:
    """The session of this process if there is one; there can be no second, so it has to fit."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = SparkContext._active_spark_context
    if context is None:
        return None
    conf = dict(context.getConf().getAll())
    has_slots = _local_slots(context.master or "")
    differing = [
        key
        for key, value in asked.items()
        if (value not in conf.get(key, "") if key in JOINED else value != conf.get(key))
    ]
    if master is not None and master != context.master:
        differing.append("spark.master")
    if slots is not None and 0 < has_slots < slots:
        differing.append(f"slots ({has_slots}, not {slots})")
    if "spark-sql-kafka" not in conf.get("spark.jars", ""):
        differing.append("spark.jars (it has no Kafka connector)")
    if differing:
        raise PipelineError(
            f"a Spark session is already running here with other settings for {', '.join(differing)};"
            " stop it with spark.stop() first, or ask for the same"
        )
    return SparkSession.builder.getOrCreate()


def _local_slots(master: str) -> int:
    """The task slots of a local master; 0 of any other."""
    if master == "local":
        return 1
    found = re.match(r"local\[(\d+|\*)", master)
    return (cores() if found[1] == "*" else int(found[1])) if found else 0


def _defaults(master: str, jars: list[str]) -> dict[str, str]:
    log_settings = f'"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"'
    wanted = {**SETTINGS, "spark.jars": ",".join(jars), "spark.driver.extraJavaOptions": log_settings}
    if slots := _local_slots(master):
        wanted |= {
            **LOCAL_FILES,
            "spark.driver.extraClassPath": next(jar for jar in jars if LOCAL_FILES_JAR in jar),
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            # Spark's 200 are meant for clusters: each is a task and, with state, files, in every batch.
            "spark.sql.shuffle.partitions": str(min(slots, cores())),
        }
    elif python_path := os.environ.get("PYTHONPATH"):
        wanted["spark.executorEnv.PYTHONPATH"] = python_path
    return wanted


def _choose_python(master: str, asked: Mapping[str, str]) -> None:
    """Let workers run this interpreter; Spark takes it from the environment, and else any `python3`."""
    chosen = asked.get("spark.pyspark.python")
    if chosen is None and not _local_slots(master):
        chosen = os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = chosen or sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
