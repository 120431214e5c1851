import os
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from millrace.testing.apache_kafka import ApacheKafka, run_tool

pytestmark = pytest.mark.java


def test_broker_serves_clients_and_tools_and_leaves_nothing_behind() -> None:
    with ApacheKafka() as kafka:
        created = run_tool(
            "org.apache.kafka.tools.TopicCommand",
            ["--bootstrap-server", kafka.bootstrap, "--create", "--topic", "greetings", "--partitions", "3"],
        )
        assert created.stdout.strip() == "Created topic greetings."
        described = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=10)
        assert len(described.topics["greetings"].partitions) == 3
        pid, directory = kafka.pid, kafka.directory
        assert kafka.ready_seconds > 0
    assert not directory.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_failing_start_says_why(tmp_path: Path) -> None:
    kafka = ApacheKafka({"log.retention.ms": "many"}, directory=tmp_path)
    with pytest.raises(RuntimeError, match="many"):
        kafka.start()
