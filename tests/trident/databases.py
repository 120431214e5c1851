"""PostgreSQL and Redis as processes of a test, on ports of their own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millrace.testing import free_port

START_SECONDS = 60.0
POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


@contextmanager
def postgresql(directory: Path) -> Iterator[str]:
    """Run PostgreSQL in a directory; yields its address."""
    programs = POSTGRES[-1] if POSTGRES else None
    if programs is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    # PostgreSQL refuses to run as root.
    user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
    data, port = directory / "data", free_port()
    directory.mkdir(parents=True, exist_ok=True)
    if user:
        shutil.chown(directory, "postgres", "postgres")
        _let_others_enter(directory)
    subprocess.run(
        [*user, programs / "initdb", "-D", data, "-U", "trident", "-A", "trust", "-N"],
        check=True,
        capture_output=True,
        cwd=directory,
    )
    server = subprocess.Popen(
        [*user, programs / "postgres", "-D", data, "-p", str(port), "-k", directory, "-h", "127.0.0.1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=directory,
    )
    try:
        ready = [programs / "pg_isready", "-h", "127.0.0.1", "-p", str(port)]
        _wait(lambda: subprocess.run(ready, capture_output=True, check=False).returncode == 0)
        yield f"postgresql://trident@127.0.0.1:{port}/postgres"
    finally:
        # A fast shutdown: it does not wait for clients.
        server.send_signal(signal.SIGINT)
        server.wait(30)


def _let_others_enter(directory: Path) -> None:
    """Let the user of PostgreSQL reach a directory below those of pytest, which only root may enter."""
    for parent in directory.parents:
        if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o111)


@contextmanager
def redis(directory: Path) -> Iterator[str]:
    """Run Redis in a directory, with every write on disk; yields its address."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("Redis is not installed: apt-get install redis-server")
    import redis as client

    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    server = subprocess.Popen(
        [program, "--port", str(port), "--dir", directory, "--appendonly", "yes", "--appendfsync", "always"],
        stdout=subprocess.DEVNULL,
    )

    def answers() -> bool:
        try:
            return bool(client.Redis(port=port).ping())
        except client.RedisError:
            return False

    try:
        _wait(answers)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.terminate()
        server.wait(30)


def _wait(condition) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the database does not start"
        time.sleep(0.05)
