"""`millrace cluster up`: ZooKeeper and several brokers as children of this process."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import click

from millrace.cli.terminal.errors import CommandError
from millrace.jars import JarsUnavailable
from millrace.zookeeper_server import ZooKeeperServer, is_serving

HOST = "127.0.0.1"
START_SECONDS = 30.0
STOP_SECONDS = 30.0
# Our ZooKeeper has ticks of 500 ms: a dead broker is replaced after this and one tick.
SESSION_MS = 6000


def run(brokers: int, port: int, zookeeper_port: int, data_dir: Path, settings: Mapping[str, str]) -> None:
    """Start everything, wait for Ctrl-C or SIGTERM, and stop everything."""
    for taken in (zookeeper_port, *range(port, port + brokers)):
        if _is_open(taken):
            raise CommandError(f"port {taken} is in use; take others (--port, --zookeeper-port)")
    signal.signal(signal.SIGTERM, _interrupt)
    zookeeper = ZooKeeperServer(port=zookeeper_port, data_dir=data_dir / "zookeeper")
    children: dict[int, subprocess.Popen[bytes]] = {}
    began = time.perf_counter()
    try:
        try:
            zookeeper.start()
        except (JarsUnavailable, RuntimeError) as error:
            raise CommandError(str(error)) from error
        for number in range(brokers):
            children[number] = _start_broker(number, port + number, zookeeper, data_dir, settings)
        for number in range(brokers):
            _await(number, port + number, children[number], data_dir)
        _print_banner(brokers, port, zookeeper, data_dir, round((time.perf_counter() - began) * 1000))
        _watch(children, data_dir)
    except KeyboardInterrupt:
        click.echo("stopping")
    finally:
        _stop(children)
        zookeeper.stop()


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _is_open(port: int) -> bool:
    if is_serving(port):
        return True
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def _start_broker(
    number: int, port: int, zookeeper: ZooKeeperServer, data_dir: Path, settings: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    directory = data_dir / f"broker-{number}"
    directory.mkdir(parents=True, exist_ok=True)
    properties = {
        "broker.id": str(number),
        "listeners": f"PLAINTEXT://{HOST}:{port}",
        "log.dirs": str(directory / "logs"),
        "zookeeper.connect": zookeeper.connect,
        "zookeeper.session.timeout.ms": str(SESSION_MS),
        "default.replication.factor": "3",
        "group.initial.rebalance.delay.ms": "0",
        **settings,
    }
    file = directory / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    with (directory / "broker.log").open("ab") as log:
        # In a session of its own, so that Ctrl-C reaches only this process, which stops the brokers in order.
        return subprocess.Popen(
            [sys.executable, "-m", "millrace", "broker", str(file)],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _await(number: int, port: int, child: subprocess.Popen[bytes], data_dir: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    log = data_dir / f"broker-{number}" / "broker.log"
    while "is ready" not in log.read_text(errors="replace"):
        if child.poll() is not None or time.monotonic() > deadline:
            raise CommandError(f"broker {number} did not start; see {log}")
        time.sleep(0.05)


def _print_banner(
    brokers: int, port: int, zookeeper: ZooKeeperServer, data_dir: Path, startup_ms: int
) -> None:
    name = click.style("millrace", bold=True, fg="cyan")
    addresses = ",".join(f"{HOST}:{port + number}" for number in range(brokers))
    click.echo(f"{name}: a cluster of {brokers} brokers is ready in {startup_ms} ms")
    click.echo(f"  address  {click.style(addresses, bold=True)}")
    click.echo(f"  zk       {zookeeper.connect}")
    click.echo(f"  data     {data_dir}")
    click.echo("  Ctrl-C stops it")


def _watch(children: dict[int, subprocess.Popen[bytes]], data_dir: Path) -> None:
    """Say when a broker dies; the others go on."""
    gone: set[int] = set()
    while len(gone) < len(children):
        for number, child in children.items():
            if number not in gone and child.poll() is not None:
                gone.add(number)
                log = data_dir / f"broker-{number}" / "broker.log"
                click.echo(f"broker {number} has ended with status {child.returncode}; see {log}", err=True)
        time.sleep(0.2)
    raise CommandError("no broker is left")


def _stop(children: dict[int, subprocess.Popen[bytes]]) -> None:
    for child in children.values():
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
