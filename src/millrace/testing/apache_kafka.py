"""Apache Kafka itself, for tests and benchmarks: its broker to compare with, its tools as real clients."""

import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from millrace.jars import apache_kafka_classpath, java
from millrace.ports import free_port

# The JVM options that kafka-server-start.sh uses by default.
BROKER_JVM_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)

# A tool runs for a second or two: compile little, collect little.
TOOL_JVM_OPTIONS = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

# Single-broker settings: everything else is Kafka's default.
BROKER_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}

# Any 16 bytes in base64.
CLUSTER_ID = "millrace-under-testing"


class ApacheKafka:
    """A real Apache Kafka broker (KRaft, one node) in a child process, with its own ports and directory."""

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        *,
        directory: Path | None = None,
        jvm_options: Sequence[str] = BROKER_JVM_OPTIONS,
        start_timeout_seconds: float = 60,
    ) -> None:
        self.directory = directory or Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        self.directory.mkdir(parents=True, exist_ok=True)
        self.data_directory = self.directory / "data"
        self.ready_seconds = 0.0
        self._owns_directory = directory is None
        self._jvm_options = list(jvm_options)
        self._start_timeout_seconds = start_timeout_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._port, controller_port = free_port(), free_port()
        self._properties_file = self.directory / "server.properties"
        self._write_properties(controller_port, properties or {})

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("Apache Kafka is not running; call start() first")
        return self._process.pid

    def start(self) -> None:
        """Format the data directory on first use, start the broker, and wait until it answers."""
        if not (self.data_directory / "meta.properties").exists():
            self._format()
        command = [str(java()), *self._jvm_options, "-cp", apache_kafka_classpath()]
        command += ["kafka.Kafka", str(self._properties_file)]
        started = time.monotonic()
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self.directory, stdout=log, stderr=log)
        try:
            self._wait_until_ready(started + self._start_timeout_seconds)
        except BaseException:
            self._end_process()
            raise
        self.ready_seconds = time.monotonic() - started

    def stop(self) -> None:
        """Stop the broker and remove its directory, unless the caller gave the directory."""
        self._end_process()
        if self._owns_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _log_file(self) -> Path:
        return self.directory / "broker.log"

    def _write_properties(self, controller_port: int, overrides: Mapping[str, str]) -> None:
        address = f"PLAINTEXT://127.0.0.1:{self._port}"
        values = {
            **BROKER_PROPERTIES,
            "listeners": f"{address},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": address,
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "log.dirs": str(self.data_directory),
            **overrides,
        }
        self._properties_file.write_text("".join(f"{key}={value}\n" for key, value in values.items()))

    def _format(self) -> None:
        arguments = ["format", "--cluster-id", CLUSTER_ID, "--config", str(self._properties_file)]
        formatted = run_tool("kafka.tools.StorageTool", arguments)
        if formatted.returncode != 0:
            raise RuntimeError(f"Apache Kafka could not format its directory: {_cause(formatted.stderr)}")

    def _wait_until_ready(self, deadline: float) -> None:
        assert self._process is not None
        while not answers_api_versions(self._port):
            if self._process.poll() is not None:
                cause = _cause(self._log_file.read_text(errors="replace"))
                raise RuntimeError(
                    f"Apache Kafka stopped while starting: {cause} (all of it: {self._log_file})"
                )
            if time.monotonic() > deadline:
                raise TimeoutError(f"Apache Kafka did not answer within {self._start_timeout_seconds} s")
            time.sleep(0.005)

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run_tool(
    main_class: str,
    arguments: Sequence[str],
    *,
    input: str | None = None,
    timeout_seconds: float = 60,
    jvm_options: Sequence[str] = TOOL_JVM_OPTIONS,
) -> subprocess.CompletedProcess[str]:
    """Run one of Apache Kafka's command-line tools, e.g. org.apache.kafka.tools.TopicCommand, to its end."""
    command = [str(java()), *jvm_options, "-cp", apache_kafka_classpath()]
    return subprocess.run(
        [*command, main_class, *arguments],
        input=input,
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
    )


def answers_api_versions(port: int, timeout_seconds: float = 5) -> bool:
    """Whether a broker on this machine answers the first request that every client sends."""
    api_key, api_version, correlation_id, no_client_id = 18, 0, 7, -1
    request = struct.pack(">hhih", api_key, api_version, correlation_id, no_client_id)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_seconds) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.recv(10, socket.MSG_WAITALL)
    except OSError:
        return False
    return answer[4:] == struct.pack(">ih", correlation_id, 0)


def _cause(output: str) -> str:
    """The last line that is not a stack frame."""
    lines = [line for line in output.splitlines() if line.strip() and not line.startswith((" ", "\t"))]
    return lines[-1] if lines else "it printed nothing"
