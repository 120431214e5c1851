"""A broker, a DRPC server and the workers of the test functions, as processes."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millrace.drpc import Client, DrpcError
from millrace.testing import Broker, free_port

FUNCTIONS = Path(__file__).with_name("functions.py")
START_SECONDS = 60.0


@contextmanager
def program(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command of millrace, ended with the block."""
    process = subprocess.Popen([sys.executable, "-m", "millrace", *arguments], env=os.environ.copy())
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def server(bootstrap: str, *options: str, port: int = 0) -> Iterator[str]:
    """A DRPC server; yields its address."""
    port = port or free_port()
    serving = ["drpc", "--serve", "--port", str(port), "--bootstrap-server", bootstrap, *options]
    with program(*serving):
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: Client(url).functions() is not None)
        yield url


@contextmanager
def topology(file: Path, bootstrap: str, workers: int = 2) -> Iterator[None]:
    arguments = ["topology", "run", str(file), "--no-spark", "--workers", str(workers)]
    with program(*arguments, "--bootstrap-server", bootstrap):
        yield


def wait_until(succeeds) -> None:
    """Wait until a call succeeds."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            if succeeds():
                return
        except DrpcError:
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline, "it does not start"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(scope="module")
def workers(broker: Broker) -> Iterator[None]:
    """The functions of the tests, on two workers."""
    with topology(FUNCTIONS, broker.bootstrap):
        yield


@pytest.fixture(scope="module")
def url(broker: Broker, workers: None) -> Iterator[str]:
    """The address of a DRPC server whose functions answer."""
    with server(broker.bootstrap, "--timeout", "20", "--max-waiting", "150") as address:
        wait_until(lambda: Client(address).execute("echo", "a") == "a!")
        yield address
