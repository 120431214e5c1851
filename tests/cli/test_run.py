"""`millrace run`: as a process of its own, as users run it, and what it refuses."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from millrace.pipelines.kafka import offsets
from millrace.pipelines.spark import session
from millrace.testing import Broker

from .. import jvm
from .conftest import Run

JOB = """
from millrace.pipelines import log, pipeline

@pipeline(lines=log.text("{topic}"), output=log.text("{topic}-loud"), name="{topic}-job")
def loud(lines):
    return lines.selectExpr("upper(value) as value")
"""


@pytest.fixture
def job(tmp_path: Path, topic: str) -> Path:
    file = tmp_path / "job.py"
    file.write_text(JOB.format(topic=topic))
    return file


@pytest.mark.slow
def test_a_job_runs_until_ctrl_c_and_shows_its_lag(run: Run, broker: Broker, job: Path, topic: str) -> None:
    for name in (topic, f"{topic}-loud"):
        run("topics", "--create", "--topic", name)
    run("console-producer", "--topic", topic, input="a\nb\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "millrace", "run", str(job), "--checkpoints", str(job.parent / "checkpoints")],
        env=os.environ
        | jvm.ENVIRONMENT
        | {"MILLRACE_BOOTSTRAP": broker.bootstrap, "MILLRACE_MASTER": "local[2]"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 200
        while not offsets.group_offsets(broker.bootstrap, f"{topic}-job", [topic]):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.1)
        # As a terminal does it: to the job, to Java and to the Python workers at once.
        os.killpg(process.pid, signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert "stopping after the current batch" in said
    assert "Exception" not in said and "Traceback" not in said
    described = run("consumer-groups", "--describe", "--group", f"{topic}-job").output
    assert [f"{topic}-job", topic, "0", "2", "2", "0"] in [
        line.split()[:6] for line in described.splitlines()
    ]


@pytest.mark.usefixtures("millrace_spark")
def test_a_job_explains_itself_runs_once_and_over_history(
    run: Run, broker: Broker, job: Path, topic: str
) -> None:
    for name in (topic, f"{topic}-loud", f"{topic}-again"):
        run("topics", "--create", "--topic", name)
    run("console-producer", "--topic", topic, input="a\nb\n")
    checkpoints = job.parent / "checkpoints"

    explained = run("run", job, "--explain", "--checkpoints", checkpoints).output
    assert "mode       micro-batch: exactly-once delivery commits batches" in explained
    assert "== Physical Plan ==" in explained
    assert not checkpoints.exists()
    assert not offsets.group_offsets(broker.bootstrap, f"{topic}-job", [topic])

    for _ in range(2):
        run("run", job, "--once", "--checkpoints", checkpoints)
    assert read(run, f"{topic}-loud") == ["A", "B"]

    again = run("run", job, "--from", "-1h", "--to", "now", "--output", f"{topic}-again")
    assert "2 records" in again.output
    assert read(run, f"{topic}-again") == ["A", "B"]
    assert read(run, f"{topic}-loud") == ["A", "B"]


def read(run: Run, topic: str) -> list[str]:
    wanted = ["--from-beginning", "--timeout-ms", "2000", "--isolation-level", "read_committed"]
    told = run("console-consumer", "--topic", topic, *wanted).output
    return sorted(line for line in told.splitlines() if len(line) == 1)


def test_a_job_that_is_not_there_is_told(run_alone: Run) -> None:
    result = run_alone("run", "nowhere.py")
    assert result.exit_code == 1
    assert "error: nowhere.py does not exist; give the path" in result.output


def test_options_that_contradict_each_other_are_told(run_alone: Run, job: Path, tmp_path: Path) -> None:
    assert "--from and --to run a batch" in run_alone("run", job, "--from", "-2h", "--once").output
    (tmp_path / "spark-pipeline.yml").write_text("name: project\n")
    assert "--name: set this in the files" in run_alone("run", tmp_path, "--name", "x").output


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails a test that starts Spark."""

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("Spark was started")

    monkeypatch.setattr(session, "session", refuse)


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("options", [[], ["--once"], ["--explain"], ["--from", "-1h"]])
def test_missing_topic_is_reported_before_spark_starts(
    run: Run, job: Path, topic: str, options: list[str]
) -> None:
    output = run("run", job, *options, fails=True).output
    assert f"create it with `millrace topics --create --topic {topic}`" in output
    assert "\n" not in output.strip()


@pytest.mark.usefixtures("no_spark")
def test_missing_broker_is_reported_before_spark_starts(run_alone: Run, job: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{server.getsockname()[1]}"
        for options in (["--explain"], ["--to", "now"]):
            result = run_alone("run", job, "--bootstrap-server", address, *options)
            assert result.exit_code == 1
            assert f"no broker answers ({address}: Connection refused); start one with" in result.output


@pytest.mark.usefixtures("no_spark")
def test_wrong_options_are_reported_before_spark_starts(run: Run, job: Path, topic: str) -> None:
    run("topics", "--create", "--topic", topic)
    assert "'soon' is not a point in time" in run("run", job, "--from", "soon", fails=True).output
    assert "has no such output" in run("run", job, "--output", "b=c", fails=True).output
    assert "write it as key=value" in run("run", job, "--conf", "a", fails=True).output
