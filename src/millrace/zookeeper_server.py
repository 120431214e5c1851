"""Apache ZooKeeper's own server, from the jars that PySpark ships: configured, started, asked if it is up."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from millrace.jars import JarsUnavailable, java
from millrace.ports import free_port

MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
# Without metrics-core it dies at the start, without snappy-java it drops every client.
JARS = ("zookeeper", "zookeeper-jute", "slf4j-api", "metrics-core", "snappy-java")
JVM_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
DEFAULTS = {
    # A session may be as short as two ticks.
    "tickTime": "500",
    "clientPort": "2181",
    "initLimit": "20",
    "syncLimit": "10",
    "maxClientCnxns": "0",
    # Its admin server would take port 8080.
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "srvr,ruok,mntr,stat,conf",
}
START_SECONDS = 30.0


def classpath() -> str:
    """The smallest class path that serves. Raises JarsUnavailable."""
    spark = importlib.util.find_spec("pyspark")
    if spark is None or spark.origin is None:
        raise JarsUnavailable("ZooKeeper comes with PySpark: install it with `pip install 'millrace[spark]'`")
    directory = Path(spark.origin).with_name("jars")
    found = []
    for name in JARS:
        jars = sorted(directory.glob(f"{name}-[0-9]*.jar"))
        if not jars:
            raise JarsUnavailable(f"{directory} has no {name}; install PySpark again")
        found.append(str(jars[-1]))
    return ":".join(found)


def write_config(path: Path, settings: Mapping[str, str]) -> None:
    """Write a zoo.cfg with these settings over our defaults."""
    lines = (f"{name}={value}\n" for name, value in {**DEFAULTS, **settings}.items())
    path.write_text("".join(lines))


def command(config: Path) -> list[str]:
    """The command that runs the server in the foreground. Raises JarsUnavailable."""
    return [str(java()), *JVM_OPTIONS, "-cp", classpath(), MAIN_CLASS, str(config)]


def is_serving(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server answers on a port."""
    try:
        with socket.create_connection((host, port), timeout=1) as connection:
            connection.sendall(b"srvr")
            return connection.recv(1024).startswith(b"Zookeeper version")
    except OSError:
        return False


class ZooKeeperServer:
    """A server in a process of its own, on a free port unless one is given."""

    def __init__(self, *, port: int = 0, data_dir: Path | None = None, tick_ms: int = 500) -> None:
        self.port = port or free_port()
        self._owns_data_dir = data_dir is None
        self.data_dir = data_dir or Path(tempfile.mkdtemp(prefix="millrace-zookeeper-"))
        self._tick_ms = tick_ms
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def connect(self) -> str:
        """The value of zookeeper.connect for brokers."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def log_file(self) -> Path:
        """The server's output."""
        return self.data_dir / "zookeeper.log"

    def start(self) -> None:
        """Start the server and wait until it serves."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        config = self.data_dir / "zoo.cfg"
        write_config(
            config,
            {
                "dataDir": str(self.data_dir.absolute()),
                "clientPort": str(self.port),
                "clientPortAddress": "127.0.0.1",
                "tickTime": str(self._tick_ms),
            },
        )
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(command(config), stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not is_serving(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"ZooKeeper did not start:\n{self.log_file.read_text(errors='replace')[-2000:]}"
                )
            time.sleep(0.05)

    def stop(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.terminate()
            process.wait(START_SECONDS)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        if self._owns_data_dir:
            shutil.rmtree(self.data_dir, ignore_errors=True)
