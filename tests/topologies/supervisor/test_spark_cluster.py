"""A topology on a Spark standalone cluster that `millrace spark-master` and `spark-worker` have started."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millrace.jars import JarsUnavailable, java
from millrace.ports import free_port
from millrace.testing import Broker

from ...waiting import until
from .word_counts import Platform, counts_of, submitted, topology_file, write_sentences

pytestmark = [pytest.mark.java, pytest.mark.proof]


@contextmanager
def started(directory: Path, *words: object) -> Iterator[None]:
    """A `millrace` process with everything that it starts."""
    command = [sys.executable, "-m", "millrace", *map(str, words)]
    with (directory / f"{words[0]}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def live_workers(page_port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{page_port}/json/", timeout=10) as response:
            return sum(worker["state"] == "ALIVE" for worker in json.load(response)["workers"])
    except OSError:
        return 0


def test_a_topology_runs_on_a_spark_cluster(tmp_path: Path) -> None:
    try:
        java()
    except JarsUnavailable as error:
        pytest.skip(str(error))
    port, page_port = free_port(), free_port()
    master = ("spark-master", "--port", port, "--page-port", page_port)
    worker = ("spark-worker", "--join", f"127.0.0.1:{port}", "--cores", 2, "--memory", "1g", "--page-port", 0)
    with Broker({"num.partitions": "4"}) as broker, started(tmp_path, *master):
        until(lambda: is_listening(page_port))
        with started(tmp_path, *worker):
            until(lambda: live_workers(page_port) == 1)
            platform = Platform(broker, tmp_path)
            try:
                expected = write_sentences(broker, 1, 100)
                url = f"spark://127.0.0.1:{port}"
                path = topology_with_files(tmp_path / "code")
                files = [tmp_path / "code" / "data"]
                with submitted(platform, path, "cluster", workers=2, master=url, files=files):
                    until(lambda: platform.state("cluster") == "ACTIVE", 120)
                    loud = {word.upper(): count for word, count in expected.items()}
                    until(lambda: counts_of(broker, 1) == (loud, 800))
            finally:
                platform.close()


def topology_with_files(directory: Path) -> Path:
    """The word count with a module beside it and a data file, which its workers need."""
    (directory / "data").mkdir(parents=True)
    (directory / "data" / "mode.txt").write_text("upper")
    (directory / "spelling.py").write_text(
        "def spell(text):\n    return getattr(text, open('data/mode.txt').read())()\n"
    )
    path = topology_file(directory, 1)
    text = path.read_text().replace('tup["value"].split()', 'spell(tup["value"]).split()')
    path.write_text("from spelling import spell\n" + text)
    return path


def is_listening(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/json/", timeout=10).close()
    except OSError:
        return False
    return True
