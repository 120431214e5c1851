"""Tests of streaming code: a real broker in milliseconds, faults on demand, pipelines and topologies."""

from typing import TYPE_CHECKING, Any

from millrace.ports import free_port
from millrace.testing.broker import Broker, BrokerProcess
from millrace.testing.clock import ManualClock
from millrace.testing.disk import FaultyDisk
from millrace.testing.faults import delay, drop, drop_answer, fail

if TYPE_CHECKING:
    from millrace.testing.pipelines import ABORT, PAUSE, Mark, run_pipeline, spark_session
    from millrace.testing.records import Output, Record, read_records, write_records
    from millrace.testing.topologies import LocalTopology

__all__ = [
    "ABORT",
    "PAUSE",
    "Broker",
    "BrokerProcess",
    "FaultyDisk",
    "LocalTopology",
    "ManualClock",
    "Mark",
    "Output",
    "Record",
    "delay",
    "drop",
    "drop_answer",
    "fail",
    "free_port",
    "read_records",
    "run_pipeline",
    "spark_session",
    "write_records",
]

_LAZY = {
    **dict.fromkeys(("ABORT", "PAUSE", "Mark", "run_pipeline", "spark_session"), "pipelines"),
    **dict.fromkeys(("Output", "Record", "read_records", "write_records"), "records"),
    "LocalTopology": "topologies",
}


def __getattr__(name: str) -> Any:
    """Import the parts for pipelines and topologies on first use: a test of a broker alone stays light."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
