"""A Spark session with the Kafka connector, the right Python for workers, and settings for short batches.

On this machine nothing else is needed. On a cluster the executors run the same Python code, so:

- each machine needs this Python version, with millrace (it brings confluent-kafka) and the imports of your
  pipelines, at the path of this interpreter; or PYSPARK_PYTHON names another interpreter, such as that of an
  environment shipped with the setting `spark.archives`;
- modules that lie beside your script, and are not installed, must be on PYTHONPATH (executors get it too), or
  shipped with the setting `spark.submit.pyFiles`;
- checkpoints must be in a location that all machines reach.

Spark itself sends the jars of the connector to the executors.
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
from millrace.pipelines.errors import PipelineError
from millrace.pipelines.spark import gateway

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER_VARIABLE = "MILLRACE_MASTER"
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

# Options of Spark's Kafka source. When its batch is complete, an executor's consumer still has a fetch parked
# at the broker, and the next batch waits for it: up to 500 ms with Kafka's default.
CONSUMER_OPTIONS: Mapping[str, str] = {"kafka.fetch.max.wait.ms": "10"}

# Settings of every session, on any master. The settings of the user override them.
SETTINGS: Mapping[str, str] = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A batch that is repeated after a crash must have the same tasks: the exactly-once sink relies on it.
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "true",
    # The only provider that supports transformWithState in Python. It keeps state outside the heap. With a
    # change log a batch writes its changes instead of the whole state.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}

# Without its native library Hadoop forks `chmod` for every file it writes. A checkpoint is many small files,
# so this takes longer than the rest of a short batch. This file system sets permissions without a fork.
LOCAL_FILES_JAR = "hadoop-bare-naked-local-fs"
LOCAL_FILES: Mapping[str, str] = {
    "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
    # The manager that uses this file system. Like Spark's default it writes to a temporary file and renames.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}

# Settings that are lists: the user's entries are appended.
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
    """Return the Spark session for pipelines: the running one if it fits, else a new one.

    `master` is any Spark master; the default is MILLRACE_MASTER, or this machine. `slots` is the number of
    tasks that must be able to run at once, which matters in real-time mode. `settings` are Spark settings;
    they override ours.
    """
    _require_pyspark()
    requested = dict(settings or {})
    master = master or requested.pop("spark.master", None) or os.environ.get(MASTER_VARIABLE)
    requested.pop("spark.master", None)
    if (running := _running_session(master, slots, requested)) is not None:
        return running
    require_java()
    master = master or local_master(slots)
    ours = {"spark.app.name": app_name, **_defaults(master, _jars())}
    wanted = {**ours, **requested, "spark.master": master}
    for key, separator in JOINED.items():
        # Ours comes first: of two Java options with one name the later one counts.
        if joined := separator.join(filter(None, [ours.get(key), requested.get(key)])):
            wanted[key] = joined
    _choose_python(master, requested)

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
    """Whether this process has a Spark session. It can have only one."""
    _require_pyspark()
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


class _Launched:
    """The JVM that `session` started, with the connector. It outlives the session."""

    gateway: Any = None


def local_master(slots: int | None = None) -> str:
    """This machine as a Spark master, with a task slot per core, or more if a query needs them."""
    return f"local[{max(slots or 1, cores())}]"


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def require_java() -> Path:
    """Return the Java launcher that Spark will use; raise if it is missing or too old."""
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
        raise PipelineError("pipelines need PySpark, which is not installed: pip install 'millrace[spark]'")


def _jars() -> list[str]:
    try:
        return list(map(str, jars.spark_kafka_jars()))
    except jars.JarsUnavailable as error:
        raise PipelineError(f"Spark's Kafka connector is downloaded on first use: {error}") from error


def _running_session(
    master: str | None, slots: int | None, requested: Mapping[str, str]
) -> SparkSession | None:
    """Return the session of this process, if there is one. There can be only one, so it has to fit."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = SparkContext._active_spark_context
    if context is None:
        return None
    conf = dict(context.getConf().getAll())
    has_slots = _local_slots(context.master or "")
    differing = [
        key
        for key, value in requested.items()
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
            " stop it with spark.stop() first, or use the same settings"
        )
    return SparkSession.builder.getOrCreate()


def _local_slots(master: str) -> int:
    """The task slots of a local master; 0 for any other master."""
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
            # Spark's default of 200 is meant for clusters: each costs a task, and files if there is state.
            "spark.sql.shuffle.partitions": str(min(slots, cores())),
        }
    elif python_path := os.environ.get("PYTHONPATH"):
        wanted["spark.executorEnv.PYTHONPATH"] = python_path
    return wanted


def _choose_python(master: str, requested: Mapping[str, str]) -> None:
    """Let workers run this interpreter. Spark takes it from the environment, or else runs any `python3`."""
    chosen = requested.get("spark.pyspark.python")
    if chosen is None and not _local_slots(master):
        chosen = os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = chosen or sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
