"""Runs Apache Kafka's own tools, to compare their output with ours."""

import pytest

from millrace.jars import JarsUnavailable, apache_kafka_classpath, java
from millrace.testing import Broker
from millrace.testing.apache_kafka import run_tool

TOOLS = "org.apache.kafka.tools"


def apache(broker: Broker | None, tool: str, *arguments: object) -> str:
    """The output of a tool; skips the test without Java, or without a network to fetch the jars."""
    try:
        java()
        apache_kafka_classpath()
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    server = ["--bootstrap-server", broker.bootstrap] if broker else []
    result = run_tool(tool, [*server, *map(str, arguments)])
    assert result.returncode == 0, result.stderr
    return result.stdout
