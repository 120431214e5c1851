"""A Spark standalone cluster for tests: a master and workers in their own processes on this machine."""

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from millrace.ports import free_port
from millrace.testing.broker import HOST

# Master and workers only start executors: little memory, and no optimized code.
DAEMON_SETTINGS = {
    "SPARK_DAEMON_MEMORY": "192m",
    "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "SPARK_LOCAL_IP": HOST,
}
STOP_SECONDS = 15.0


class StandaloneSpark:
    """A Spark master and its workers during a block.

    >>> with StandaloneSpark(workers=2) as cluster:
    ...     session(master=cluster.master)
    """

    def __init__(
        self,
        workers: int = 2,
        *,
        cores: int = 1,
        memory: str = "1g",
        directory: Path | None = None,
        start_timeout_seconds: float = 60,
    ) -> None:
        self.directory = directory or Path(tempfile.mkdtemp(prefix="standalone-spark-"))
        self.directory.mkdir(parents=True, exist_ok=True)
        self._owns_directory = directory is None
        self._worker_options = ["--cores", str(cores), "--memory", memory]
        self._wanted_workers = workers
        self._start_timeout_seconds = start_timeout_seconds
        self._port = self._page_port = 0
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        """By listening port."""

    @property
    def master(self) -> str:
        """The URL for --master."""
        return f"spark://{HOST}:{self._port}"

    @property
    def pids(self) -> list[int]:
        """The process ids of the master and its workers."""
        return [process.pid for process in self._processes().values()]

    def start(self) -> None:
        """Start the processes and wait until every worker is registered."""
        self._port, self._page_port = free_port(), free_port()
        try:
            self._master = self._launch(
                "master",
                "org.apache.spark.deploy.master.Master",
                ["--host", HOST, "--port", str(self._port), "--webui-port", str(self._page_port)],
            )
            # Start workers after the master: a worker that finds no master retries only after seconds.
            self._await_workers()
            for _ in range(self._wanted_workers):
                self._launch_worker()
            self._await_workers()
        except BaseException:
            self._end_processes()
            raise

    def stop(self) -> None:
        """End all processes, including executors; remove the directory unless the caller gave it."""
        self._end_processes()
        if self._owns_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def kill_worker(self) -> None:
        """Kill the newest worker with its executors, as if its machine were lost; the others keep running."""
        _, worker = self._workers.popitem()
        _kill_group(worker)

    def add_worker(self) -> None:
        """Start another worker and wait until it is registered."""
        self._launch_worker()
        self._await_workers()

    def state(self) -> Mapping[str, Any]:
        """The state of the master: its workers, and its running and completed applications."""
        with urllib.request.urlopen(f"http://{HOST}:{self._page_port}/json/", timeout=10) as response:
            state: Mapping[str, Any] = json.load(response)
            return state

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _launch_worker(self) -> None:
        port = free_port()
        arguments = ["--host", HOST, "--port", str(port), "--webui-port", "0"]
        arguments += ["--work-dir", str(self.directory / f"worker-{port}")]
        self._workers[port] = self._launch(
            f"worker-{port}",
            "org.apache.spark.deploy.worker.Worker",
            [*arguments, *self._worker_options, self.master],
        )

    def _launch(self, name: str, main_class: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        home = _spark_home()
        environment = os.environ | DAEMON_SETTINGS
        environment |= {"SPARK_HOME": str(home), "SPARK_LOCAL_DIRS": str(self.directory / f"{name}-scratch")}
        with self._log_file(name).open("ab") as log:
            return subprocess.Popen(
                [str(home / "bin" / "spark-class"), main_class, *arguments],
                cwd=self.directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Its own process group: executors end with their worker, and Ctrl-C goes to the test only.
                start_new_session=True,
            )

    def _log_file(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def _await_workers(self) -> None:
        deadline = time.monotonic() + self._start_timeout_seconds
        while not self._are_all_workers_registered():
            self._require_all_running()
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"the Spark cluster was not ready within {self._start_timeout_seconds:.0f} s;"
                    f" see the logs in {self.directory}"
                )
            time.sleep(0.05)

    def _are_all_workers_registered(self) -> bool:
        try:
            registered = self.state()["workers"]
        except OSError:
            return False
        return self._workers.keys() <= {worker["port"] for worker in registered if worker["state"] == "ALIVE"}

    def _require_all_running(self) -> None:
        for name, process in self._processes().items():
            if process.poll() is not None:
                log = self._log_file(name).read_text(errors="replace")
                raise RuntimeError(f"Spark's {name} stopped while starting:\n{log}")

    def _processes(self) -> dict[str, subprocess.Popen[bytes]]:
        master = {} if self._master is None else {"master": self._master}
        return master | {f"worker-{port}": worker for port, worker in self._workers.items()}

    def _end_processes(self) -> None:
        """End workers first: on SIGTERM they end their executors."""
        processes = [*reversed(self._processes().values())]
        for process in processes:
            process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            _kill_group(process)
        self._workers, self._master = {}, None


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and the rest of its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _spark_home() -> Path:
    """The Spark in the PySpark package, found without importing PySpark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("Spark is part of PySpark; run: pip install 'millrace[spark]'")
    return Path(spec.submodule_search_locations[0])
