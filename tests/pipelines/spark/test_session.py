"""The Spark session: settings, conflicts, and missing requirements."""

import importlib.util
import os
import sys
from collections import deque
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark import SparkConf
from pyspark.sql import SparkSession

from millrace import jars
from millrace.pipelines import PipelineError
from millrace.pipelines.spark import gateway
from millrace.pipelines.spark.session import cores, local_master, require_java, session
from millrace.testing import Broker


def test_session_reads_the_log_without_settings(spark: SparkSession, broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("greetings", "hello")
    producer.flush()
    rows = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", "greetings")
        .load()
        .selectExpr("cast(value as string) as value")
        .collect()
    )
    assert [row.value for row in rows] == ["hello"]


def test_workers_run_this_interpreter(spark: SparkSession) -> None:
    def interpreter(_: int) -> str:
        import sys

        return sys.executable

    assert spark.sparkContext.parallelize([0], 1).map(interpreter).collect() == [sys.executable]


def test_user_settings_override_ours(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"


def test_second_call_returns_the_running_session(spark: SparkSession) -> None:
    assert session() is spark
    assert session("another", master="local[2]", slots=2) is spark


def test_running_session_that_does_not_fit_is_refused(spark: SparkSession) -> None:
    with pytest.raises(
        PipelineError, match=r"other settings for spark\.master; stop it with spark\.stop\(\)"
    ):
        session(master="spark://elsewhere:7077")
    with pytest.raises(PipelineError, match=r"slots \(2, not 64\)"):
        session(slots=64)
    with pytest.raises(PipelineError, match=r"spark\.task\.cpus"):
        session(settings={"spark.task.cpus": "2"})


def test_local_master_has_a_slot_per_core_or_more() -> None:
    assert local_master() == f"local[{cores()}]"
    assert local_master(1) == f"local[{cores()}]"
    assert local_master(cores() + 3) == f"local[{cores() + 3}]"


def test_missing_java_is_reported_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise jars.JarsUnavailable("no Java found; install a JDK 17 or newer, or point JAVA_HOME at one")

    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(jars, "java", nowhere)
    with pytest.raises(PipelineError, match="Spark needs Java: no Java found; install a JDK 17"):
        require_java()


def test_java_home_without_java_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PipelineError, match="has no bin/java; point it at a JDK 17 or unset it"):
        require_java()


def test_old_java_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    launcher = tmp_path / "java"
    launcher.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    launcher.chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(jars, "java", lambda: launcher)
    with pytest.raises(PipelineError, match=r"needs Java 17 or newer, and .*/java is 11\.0\.2; install"):
        require_java()


def test_missing_pyspark_is_reported_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(PipelineError, match=r"pip install 'millrace\[spark\]'"):
        session()


def test_failed_download_is_reported_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable() -> list[Path]:
        raise jars.JarsUnavailable("could not download 4 jars; check the network")

    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    monkeypatch.setattr(jars, "spark_kafka_jars", unreachable)
    with pytest.raises(PipelineError, match=r"connector is downloaded on first use: .* check the network"):
        session()


def test_jvm_that_does_not_start_is_reported_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-javaagent:/nowhere.jar")
    with pytest.raises(PipelineError, match=r"Spark did not start \(.*\); `millrace doctor` checks"):
        gateway.launch(SparkConf(loadDefaults=False).set("spark.driver.memory", "64m"))


def test_noise_of_the_jvm_is_filtered(capsys: pytest.CaptureFixture[str]) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"WARNING: Using incubator modules: jdk.incubator.vector\nout of memory\n")
    os.close(writing)
    gateway._relay(reading, deque())
    assert capsys.readouterr().err == "out of memory\n"
