"""A broker that cannot start says why and what to do, and disturbs no other broker."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer

from millrace.broker import StartupError
from millrace.testing import Broker, BrokerProcess

from .mounts import mounted


def send(broker: Broker, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 20_000})
    producer.produce("topic", value)
    assert producer.flush(20) == 0


def test_a_second_broker_on_a_data_directory_fails_and_the_first_continues(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as first:
        send(first, b"before")
        with pytest.raises(StartupError) as refusal:
            Broker(data_dir=tmp_path).start()
        assert str(tmp_path) in str(refusal.value)
        assert "in use by another broker" in str(refusal.value)
        assert "log.dirs" in str(refusal.value)
        send(first, b"after")


def test_a_second_process_on_a_data_directory_prints_one_clear_line(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as first:
        second = BrokerProcess(data_dir=tmp_path)
        with pytest.raises(RuntimeError, match="in use by another broker"):
            second.start()
        assert "Traceback" not in second.log_file.read_text()
        send(first, b"after")


def test_a_port_in_use_is_named_and_the_directory_is_free_again(tmp_path: Path) -> None:
    with Broker() as first:
        taken = {"listeners": f"PLAINTEXT://127.0.0.1:{first.port}"}
        with pytest.raises(
            StartupError,
            match=rf"port {first.port} is in use( by .+)?; stop the other broker or take another",
        ):
            Broker(taken, data_dir=tmp_path).start()
        send(first, b"undisturbed")
        with Broker(data_dir=tmp_path):
            pass


def test_a_data_directory_that_is_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text("not a directory")
    with pytest.raises(StartupError) as refusal:
        Broker(data_dir=path).start()
    assert str(path) in str(refusal.value)
    assert "log.dirs" in str(refusal.value)


def test_a_directory_below_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file" / "data"
    path.parent.write_text("not a directory")
    with pytest.raises(StartupError) as refusal:
        Broker(data_dir=path).start()
    assert str(path) in str(refusal.value)
    assert "log.dirs" in str(refusal.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_permission_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StartupError, match="cannot write to the data directory"):
        Broker(data_dir=tmp_path / "data").start()


def test_a_read_only_data_directory_is_named(tmp_path: Path) -> None:
    with mounted(tmp_path / "read-only", "ro", "size=1m") as path:
        with pytest.raises(StartupError) as refusal:
            Broker(data_dir=path).start()
        assert f"cannot write to the data directory {path}" in str(refusal.value)
        assert "choose another directory (--data-dir, or log.dirs" in str(refusal.value)


def test_a_data_directory_that_became_read_only_is_named(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=8m") as path:
        with Broker(data_dir=path) as broker:
            send(broker, b"while it could be written")
        subprocess.run(["mount", "-o", "remount,ro", str(path)], check=True)
        with pytest.raises(StartupError) as refusal:
            Broker(data_dir=path).start()
        assert f"cannot write to the data directory {path}" in str(refusal.value)


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    with mounted(tmp_path / "full", "size=64k") as path:
        with contextlib.suppress(OSError), (path / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
        with pytest.raises(StartupError) as refusal:
            Broker(data_dir=path).start()
        assert str(path) in str(refusal.value)
        assert "full" in str(refusal.value)


@pytest.mark.parametrize("content", [b"", b"{", b"\0" * 40, b"[]"])
def test_damaged_metadata_is_named_with_its_remedy(content: bytes, tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        send(broker, b"a topic")
    (file,) = (tmp_path / "metadata" / "topics").glob("*.json")
    file.write_bytes(content)
    with pytest.raises(StartupError) as refusal:
        Broker(data_dir=tmp_path).start()
    assert str(file) in str(refusal.value)
    assert "repair or remove" in str(refusal.value)
