import os
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from millrace.cli.doctor import checks
from millrace.cli.doctor.checks import Finding, Verdict
from millrace.testing import Broker, free_port

from .conftest import Run


def test_every_check_has_a_line(run_alone: Run, tmp_path: Path) -> None:
    result = run_alone("doctor", "--data-dir", tmp_path, "--port", free_port())
    for what in ("Python", "Java", "uvloop", "port", "open files", "data dir", "disk space", "memory"):
        assert what in result.stdout


def test_a_port_in_use_is_a_warning_that_names_its_owner(broker: Broker) -> None:
    finding = checks.check_port(broker.port)
    assert finding.verdict is Verdict.WARN
    if Path("/proc/net/tcp").exists():
        assert f"in use by pid {os.getpid()}" in finding.state


def test_a_failure_makes_the_exit_code_1(run_alone: Run, tmp_path: Path) -> None:
    not_a_directory = tmp_path / "file"
    not_a_directory.touch()
    result = run_alone("doctor", "--data-dir", not_a_directory / "data")
    assert result.exit_code == 1
    assert "cannot be written" in result.stdout
    assert "choose another with --data-dir" in result.stdout
    assert "to fix before a broker can run" in result.stderr


@pytest.mark.parametrize(
    ("limit", "verdict"), [(100, Verdict.FAIL), (4096, Verdict.WARN), (65536, Verdict.OK)]
)
def test_low_file_limits_are_reported(monkeypatch: pytest.MonkeyPatch, limit: int, verdict: Verdict) -> None:
    monkeypatch.setattr(checks.resource, "getrlimit", lambda _: (limit, limit))
    finding = checks.check_open_files()
    assert finding.verdict is verdict
    assert ("ulimit -n" in finding.remedy) == (verdict is not Verdict.OK)


def test_java_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.shutil, "which", lambda *_, **__: None)
    finding = checks.check_java()
    assert finding.verdict is Verdict.WARN
    assert "JAVA_HOME" in finding.remedy


def test_an_old_java_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    launcher = tmp_path / "java"
    launcher.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    launcher.chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert checks.check_java().verdict is Verdict.WARN


@pytest.mark.parametrize(
    ("kind", "verdict"), [("ext4", Verdict.OK), ("nfs4", Verdict.WARN), ("tmpfs", Verdict.WARN)]
)
def test_unreliable_file_systems_are_warnings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, verdict: Verdict
) -> None:
    monkeypatch.setattr(checks, "file_system", lambda _: kind)
    findings = {finding.what: finding for finding in checks.check_data_dir(tmp_path)}
    assert findings["file system"].verdict is verdict


def test_a_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "needed_packages", lambda: ["no-such-package"])
    monkeypatch.setattr(checks, "OPTIONAL_PACKAGES", ())
    assert list(checks.check_packages()) == [
        Finding(Verdict.FAIL, "no-such-package", "not installed", "pip install no-such-package")
    ]


def test_a_connector_that_is_not_fetched_yet_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MILLRACE_JARS", str(tmp_path))
    finding = checks.check_connector()
    assert finding.verdict is Verdict.WARN
    assert "the first `millrace run` fetches them" in finding.remedy


def test_a_damaged_connector_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MILLRACE_JARS", str(tmp_path))
    for jar in checks.jars.locked_jars("spark-kafka"):
        (tmp_path / jar.file_name).write_text("cut off")
    finding = checks.check_connector()
    assert (finding.verdict, "is damaged" in finding.state) == (Verdict.WARN, True)
    assert f"rm {tmp_path}" in finding.remedy


def test_another_pyspark_than_the_tested_one_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.importlib.metadata, "version", lambda _: "3.5.0")
    (finding,) = (found for found in checks.check_packages() if found.what == "pyspark")
    assert finding.verdict is Verdict.WARN
    assert "tested with 4.3.0" in finding.remedy


def filled(data_dir: Path, broker: Broker, **configs: str) -> list[Path]:
    """The segments of a topic "orders", a record in each."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    small = {"segment.bytes": "2000"}
    admin.create_topics([NewTopic("orders", 1, config=small | configs)])["orders"].result(10)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 1})
    for _ in range(5):
        producer.produce("orders", bytes(1500), b"key")
    assert producer.flush(10) == 0
    return sorted((data_dir / "orders-0").glob("*.log"))


def test_a_deleted_segment_is_a_warning_that_names_its_offsets(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        _, second, *_, last = filled(tmp_path, broker)
        assert [finding.verdict for finding in checks.check_logs(tmp_path)] == [Verdict.OK]
    second.unlink()
    last.unlink()
    findings = list(checks.check_logs(tmp_path))
    assert [(finding.verdict, finding.state) for finding in findings] == [
        (Verdict.WARN, "orders-0: offsets 1 to 1 are missing"),
        (Verdict.WARN, "orders-0: offsets 4 to 4 are missing"),
    ]


def test_gaps_of_a_compacted_topic_are_no_warning(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        _, second, *_ = filled(tmp_path, broker, **{"cleanup.policy": "compact"})
    second.unlink()
    assert [finding.verdict for finding in checks.check_logs(tmp_path)] == [Verdict.OK]


def test_damaged_metadata_of_a_topic_is_a_failure(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        filled(tmp_path, broker)
    (metadata,) = (tmp_path / "metadata" / "topics").iterdir()
    metadata.write_text("{")
    (finding,) = checks.check_logs(tmp_path)
    assert finding.verdict is Verdict.FAIL
    assert str(metadata) in finding.state


def test_a_data_directory_that_is_yet_to_be_created_has_no_logs_to_check(tmp_path: Path) -> None:
    assert list(checks.check_logs(tmp_path / "none")) == []
    assert not (tmp_path / "none").exists()
