"""The broker's configuration: reading files, defaults, old names, bad values."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.config import BrokerConfig, ConfigError, LogConfig


def test_an_empty_file_gives_kafkas_defaults() -> None:
    config = BrokerConfig.from_properties({})
    assert config.num_partitions == 1
    assert config.auto_create_topics_enable is True
    assert config.socket_request_max_bytes == 104857600
    assert config.log_dirs == ("/tmp/kafka-logs",)
    assert config.log_config({}) == LogConfig()


def test_a_kraft_file_is_read_unchanged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\n"
        "node.id=4\n"
        "controller.quorum.bootstrap.servers=localhost:9093\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
        "inter.broker.listener.name=PLAINTEXT\n"
        "controller.listener.names=CONTROLLER\n"
        "num.network.threads=3\n"
        "log.dirs=/data/a,/data/b\n"
        "num.partitions=6\n"
        "log.retention.hours=24\n"
        "log.segment.bytes=1048576\n"
        "offsets.topic.replication.factor=1\n"
    )
    config = BrokerConfig.from_file(file)
    assert config.node_id == config.broker_id == 4
    assert config.log_dirs == ("/data/a", "/data/b")
    assert config.num_partitions == 6
    assert config.log_config({}).retention_ms == 24 * 3600 * 1000
    assert config.log_config({}).segment_bytes == 1048576
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_zookeeper_era_file_is_read_unchanged() -> None:
    config = BrokerConfig.from_properties(
        {"broker.id": "0", "port": "9092", "log.dir": "/data", "zookeeper.connect": "localhost:2181"}
    )
    assert config.node_id == 0
    assert config.log_dirs == ("/data",)
    assert config.zookeeper_connect == "localhost:2181"
    assert config.listeners[0].port == 9092


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "5"}, 300_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "5", "log.retention.ms": "7"}, 7),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finest_unit_of_retention_counts(given: dict[str, str], expected: int) -> None:
    assert BrokerConfig.from_properties(given).log_config({}).retention_ms == expected


def test_a_topics_own_setting_overrides_the_brokers() -> None:
    config = BrokerConfig.from_properties({"log.segment.bytes": "2000", "log.cleanup.policy": "compact"})
    log_config = config.log_config({"segment.bytes": "1000"})
    assert log_config.segment_bytes == 1000
    assert log_config.cleanup_policy == ("compact",)


def test_dynamic_settings_override_the_file_and_those_of_this_broker_come_first() -> None:
    config = BrokerConfig.from_properties({"log.retention.ms": "1", "log.cleaner.threads": "1"})
    config.set_dynamic({"log.retention.ms": "2", "log.cleaner.threads": "2"}, {})
    assert (config.log_config({}).retention_ms, config.log_cleaner_threads) == (2, 2)
    config.set_dynamic({"log.retention.ms": "2"}, {"log.retention.ms": "3"})
    assert (config.log_config({}).retention_ms, config.log_cleaner_threads) == (3, 1)


def test_an_unknown_option_is_a_warning_that_suggests_the_nearest(caplog: pytest.LogCaptureFixture) -> None:
    BrokerConfig.from_properties({"num.partitons": "3", "retention.ms": "5", "my.own.thing": "1"})
    assert "unknown option num.partitons is ignored; did you mean num.partitions?" in caplog.text
    assert "retention.ms is a topic's option and is ignored; did you mean log.retention.ms?" in caplog.text
    assert "unknown option my.own.thing is ignored" in caplog.text


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("log.segment.bytes", "3", "log.segment.bytes must be at least 14, got 3"),
        ("log.segment.bytes", "1GB", "log.segment.bytes must be a whole number, got '1GB'"),
        ("log.segment.bytes", "99999999999", "log.segment.bytes must lie between -2147483648 and 2147483647"),
        ("num.partitions", "0", "num.partitions must be at least 1, got 0"),
        ("auto.create.topics.enable", "yes", "auto.create.topics.enable must be true or false, got 'yes'"),
        ("compression.type", "brotli", "compression.type must be one of .*, got 'brotli'"),
        ("log.cleanup.policy", "delete,delete", "log.cleanup.policy names a value twice"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "must be at most 1, got 1.5"),
        ("compression.gzip.level", "0", "must be at least 1, got 0"),
        ("node.id", "-3", "node.id must be at least 0"),
        ("process.roles", "controller", "process.roles must include broker"),
    ],
)
def test_a_wrong_value_is_rejected_with_the_expected_one(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BrokerConfig.from_properties({name: text})


def test_two_numbers_for_one_broker_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"node\.id is 1 but broker\.id is 2"):
        BrokerConfig.from_properties({"node.id": "1", "broker.id": "2"})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.properties: No such file"):
        BrokerConfig.from_file(tmp_path / "none.properties")


def test_importing_the_options_stays_cheap() -> None:
    """The names of options without effect, and the search for similar names, are loaded only when needed."""
    script = (
        "import sys, millrace.config; print('difflib' in sys.modules, 'millrace.config.known' in sys.modules)"
    )
    printed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert printed.split() == ["False", "False"]
