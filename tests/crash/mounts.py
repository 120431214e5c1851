"""File systems for tests: small ones, read-only ones."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def mounted(path: Path, *options: str) -> Iterator[Path]:
    """Mount a file system in memory at a path; skips the test if mounting is not allowed."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(path)]
    try:
        mount = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command here")
    if mount.returncode:
        pytest.skip(f"mounting is not allowed here: {mount.stderr.decode().strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=False)
