"""Brokers in processes of their own, started like users start them."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from millrace.testing import Broker

from ..waiting import until
from .conftest import Run

READY = re.compile(r"address\s+(\S+:\d+)")


@contextmanager
def started(*arguments: object, cwd: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A `millrace` process, and its output until it was ready."""
    command = [sys.executable, "-m", "millrace", *map(str, arguments)]
    process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        banner = ""
        for line in process.stdout:
            banner += line
            if "Ctrl-C" in line:
                break
        yield process, banner
    finally:
        process.kill()
        process.wait()


def address(banner: str) -> str:
    found = READY.search(banner)
    assert found, banner
    return found[1]


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_up_prints_its_address_and_stops_cleanly(
    run_alone: Run, tmp_path: Path, stop: signal.Signals
) -> None:
    with started("up", "--port", 0, "--set", "num.partitions=3", cwd=tmp_path) as (process, banner):
        assert str(tmp_path / "millrace-data") in banner
        assert re.search(rf"pid\s+{process.pid}", banner)
        assert re.search(r"topics\s+0", banner)
        created = run_alone("topics", "--bootstrap-server", address(banner), "--create", "--topic", "t")
        assert created.stdout == "Created topic t.\n"
        process.send_signal(stop)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0
        assert out == "stopped\n"
        assert err == ""
    assert (tmp_path / "millrace-data" / "t-2").is_dir()


@pytest.mark.parametrize(
    ("host", "exposed"),
    [
        ("127.0.0.1", None),
        ("localhost", None),
        ("::1", None),
        ("0.0.0.0", "0.0.0.0"),
        ("::", "::"),
    ],
)
def test_up_says_once_that_other_machines_need_no_password(
    tmp_path: Path, host: str, exposed: str | None
) -> None:
    with started("up", "--only", "broker", "--port", 0, "--host", host, cwd=tmp_path) as (_, banner):
        lines = [line for line in banner.splitlines() if "no authentication" in line]
        if exposed is None:
            assert lines == []
        else:
            (line,) = lines
            assert f"anyone who can reach {exposed}:" in line


def test_a_broker_that_listens_everywhere_says_that_it_needs_no_password(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={tmp_path}/logs\nlisteners=PLAINTEXT://:0\n")
    with started("broker", file, cwd=tmp_path) as (_, banner):
        assert "it asks for no authentication" in banner


def test_a_stop_that_loses_a_log_is_an_error(run_alone: Run, tmp_path: Path) -> None:
    settings = ("--set", "log.flush.interval.ms=3600000")
    with started("up", "--port", 0, *settings, cwd=tmp_path) as (process, banner):
        to = ("--bootstrap-server", address(banner), "--topic", "orders")
        assert run_alone("console-producer", *to, input="1\n").exit_code == 0
        (active,) = (tmp_path / "millrace-data" / "orders-0").glob("*.log")
        # As good as a disk that is gone: nothing that is flushed now can be found again.
        active.unlink()
        process.terminate()
        out, err = process.communicate(timeout=90)
    assert process.returncode == 1
    assert "stopped" not in out
    assert "cannot close the log of orders-0" in err
    assert err.endswith(
        "error: the broker has stopped, but could not write everything (see the errors above);"
        " the next start checks the logs\n"
    )


def test_a_broker_stays_small(tmp_path: Path) -> None:
    with started("up", "--only", "broker", "--port", 0, cwd=tmp_path) as (process, _):
        status = Path(f"/proc/{process.pid}/status")
        if not status.exists():
            pytest.skip("needs /proc")
        resident = re.search(r"VmRSS:\s+(\d+) kB", status.read_text())
        assert resident
        assert int(resident[1]) < 42 * 1024


def test_a_kafka_properties_file_runs_unchanged(run_alone: Run, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        f"broker.id=7\nport=9092\nlog.dir={tmp_path}/kafka-logs\nzookeeper.connect=localhost:2181\n"
    )
    override = ("--override", "listeners=PLAINTEXT://127.0.0.1:0")
    with started("broker", file, "--standalone", *override, cwd=tmp_path) as (process, banner):
        output = run_alone("broker-api-versions", "--bootstrap-server", address(banner)).stdout
        assert "(id: 7 rack: null" in output
        process.terminate()
        assert process.wait(10) == 0
    assert (tmp_path / "kafka-logs" / "meta.properties").exists()


def test_a_port_in_use_is_an_error_with_a_remedy(run_alone: Run, broker: Broker, tmp_path: Path) -> None:
    result = run_alone("up", "--only", "broker", "--port", broker.port, "--data-dir", tmp_path / "data")
    assert result.exit_code == 1
    assert re.fullmatch(
        rf"error: port {broker.port} is in use( by .+ \(pid {os.getpid()}\))?; stop the other broker or take"
        r" another port \(--port, or listeners in the properties file\)\n",
        result.stderr,
    )


def test_a_service_whose_port_is_taken_is_left_out_and_the_owner_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        parts = ("--only", "broker,topologies", "--service-port", f"topologies={port}")
        with started("up", "--port", 0, *parts, cwd=tmp_path) as (process, banner):
            process.terminate()
            assert process.wait(60) == 0
    assert f"left out: port {port} of the topology API is in use" in banner
    assert "--service-port topologies=PORT takes another" in banner


def test_services_run_beside_a_broker_that_runs_already(broker: Broker, tmp_path: Path) -> None:
    parts = ("--only", "topologies", "--service-port", "topologies=0", "--bootstrap-server", broker.bootstrap)
    with started("up", *parts, cwd=tmp_path) as (process, banner):
        assert f"services for {broker.bootstrap}" in banner
        found = re.search(r"topologies +(http://\S+)", banner)
        assert found, banner
        url = f"{found[1]}/api/v1/topology/summary"
        # The port is taken before the service is ready: the request waits for it.
        until(lambda: httpx.get(url, timeout=60).status_code == 200)
        assert httpx.get(url).json()["topologies"] == []
        process.terminate()
        assert process.wait(60) == 0
    assert (tmp_path / "millrace-data" / "http.token").stat().st_mode & 0o777 == 0o600


def test_a_data_directory_in_use_is_an_error(run_alone: Run, broker: Broker) -> None:
    result = run_alone("up", "--only", "broker", "--port", 0, "--data-dir", broker.data_dir)
    assert result.exit_code == 1
    assert str(broker.data_dir) in result.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_data_directory_that_cannot_be_written_fails(run_alone: Run) -> None:
    assert (
        "cannot write to the data directory"
        in run_alone("up", "--only", "broker", "--port", 0, "--data-dir", "/proc/data").stderr
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("up", "--set", "num.partitions=many"), "num.partitions"),
        (("up", "--set", "num.partitions"), "--set num.partitions: write it as key=value"),
        (("up", "--only", "kitchen"), "--only kitchen: there is no such part; there are broker, "),
        (("up", "--only", "broker", "--without", "rest"), "give --only or --without, not both"),
        (("up", "--service-port", "rest=many"), "a port is a number from 0 to 65535"),
        (("up", "--service-port", "supervisor=1"), "--service-port supervisor: there is no such part"),
        (("broker",), "Missing argument"),
        (("broker", "/missing.properties"), "cannot read /missing.properties: No such file"),
        (("broker", "-daemon", "server.properties"), "the broker stays in the foreground"),
    ],
)
def test_invalid_options_are_rejected(run_alone: Run, arguments: tuple[str, ...], message: str) -> None:
    result = run_alone(*arguments)
    assert result.exit_code == 1
    assert message in result.stderr
