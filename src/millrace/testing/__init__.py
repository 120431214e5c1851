"""What tests of streaming code need: a real broker in milliseconds, and faults on demand."""

from millrace.testing.broker import Broker, BrokerProcess, free_port
from millrace.testing.clock import ManualClock
from millrace.testing.disk import FaultyDisk
from millrace.testing.faults import delay, drop, drop_answer, fail

__all__ = [
    "Broker",
    "BrokerProcess",
    "FaultyDisk",
    "ManualClock",
    "delay",
    "drop",
    "drop_answer",
    "fail",
    "free_port",
]
