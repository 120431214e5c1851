"""A Spark standalone cluster: the command lines of its master and its workers.

PySpark's package has Spark itself, but not the scripts that start a cluster.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import NamedTuple

from millrace.topologies.model.errors import TopologyError

MASTER_PORT = 7077
# Spark's own defaults, 8080 and 8081, are those of the topology API and of the schema registry.
MASTER_PAGE_PORT = 8180
WORKER_PAGE_PORT = 8181


class SparkCommand(NamedTuple):
    """A command line and its environment."""

    words: list[str]
    environment: dict[str, str]

    def execute(self) -> None:
        """Become this command: signals reach it directly."""
        os.execve(self.words[0], self.words, self.environment)


def master_command(host: str, port: int, page_port: int) -> SparkCommand:
    arguments = ["--host", host, "--port", str(port), "--webui-port", str(page_port)]
    return _command("org.apache.spark.deploy.master.Master", arguments, host)


def worker_command(
    master: str, host: str, page_port: int, *, cores: int | None, memory: str | None, work_dir: Path
) -> SparkCommand:
    """`master`: HOST, HOST:PORT or spark://HOST:PORT."""
    arguments = ["--host", host, "--webui-port", str(page_port), "--work-dir", str(work_dir)]
    if cores is not None:
        arguments += ["--cores", str(cores)]
    if memory is not None:
        arguments += ["--memory", memory]
    return _command("org.apache.spark.deploy.worker.Worker", [*arguments, master_url(master)], host)


def master_url(master: str) -> str:
    address = master.removeprefix("spark://")
    return f"spark://{address}" if ":" in address else f"spark://{address}:{MASTER_PORT}"


def _command(main_class: str, arguments: list[str], host: str) -> SparkCommand:
    home = spark_home()
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": host,
        # Workers of a topology run in the interpreter that has millrace.
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
    }
    environment.setdefault("SPARK_DAEMON_MEMORY", "256m")
    return SparkCommand([str(home / "bin" / "spark-class"), main_class, *arguments], environment)


def spark_home() -> Path:
    """The Spark in the PySpark package, found without importing PySpark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise TopologyError("Spark is part of PySpark; run: pip install 'millrace[spark]'")
    return Path(spec.submodule_search_locations[0])
