"""Errors that end a query, classified and explained."""

from __future__ import annotations

import pytest

from millrace.pipelines.errors import BrokerUnavailable, PipelineError
from millrace.pipelines.run import failures

PYTHON = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
  File "job.py", line 7, in boom
    return 1 / 0
ZeroDivisionError: division by zero

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)
"""
JAVA = """[STREAM_FAILED] Query terminated with exception: Job aborted due to stage failure
Caused by: org.apache.spark.SparkArithmeticException: [ZERO] Division by zero. SQLSTATE: 22012
\tat org.apache.spark.sql.Whatever(Whatever.scala:1)
"""


@pytest.mark.parametrize(
    ("report", "line"),
    [
        (PYTHON, "words failed: ZeroDivisionError: division by zero; the details are in w.log"),
        (JAVA, "words failed: SparkArithmeticException: [ZERO] Division by zero; the details are in w.log"),
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: No space left on device",
            "words failed: No space left on device; the details are in w.log",
        ),
        (
            "millrace.pipelines.errors.PipelineError: words cannot write; allow it\nmore",
            "words cannot write; allow it",
        ),
    ],
)
def test_cause_is_explained_in_one_line(report: str, line: str) -> None:
    assert str(failures.explained(RuntimeError(report), "words", "localhost:9092", "w.log")) == line


@pytest.mark.parametrize(
    "report",
    [
        "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment",
        "Caused by: org.apache.kafka.common.errors.DisconnectException",
        'cimpl.KafkaException: KafkaError{code=_TRANSPORT,val=-195,str="Local: Broker transport failure"}',
    ],
)
def test_unavailable_broker_is_recognised(report: str) -> None:
    assert failures.is_about_connection(RuntimeError(report))


def test_other_errors_are_not_about_the_connection() -> None:
    assert not failures.is_about_connection(RuntimeError(PYTHON))
    assert not failures.is_about_connection(PipelineError("no topic; create it"))
    assert failures.is_about_connection(BrokerUnavailable("down; start it"))
