"""Virtual environments for other libraries, separate from our dependencies."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from millrace import jars

INSTALL_SECONDS = 900


class NotInstalled(Exception):
    """A library cannot be installed for this Python; the message says why."""


def python_with(requirement: str) -> Path:
    """The interpreter of an environment with this library, which is created unless it is cached."""
    directory = jars.cache_directory().with_name("rivals") / requirement.replace("==", "-")
    interpreter, complete = directory / "bin" / "python", directory / "complete"
    if complete.exists() and interpreter.exists():
        return interpreter
    shutil.rmtree(directory, ignore_errors=True)
    _run(requirement, [sys.executable, "-m", "venv", str(directory)])
    _run(requirement, [str(interpreter), "-m", "pip", "install", "--quiet", requirement])
    complete.touch()
    return interpreter


def _run(requirement: str, command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["pip says nothing"]
        version = ".".join(map(str, sys.version_info[:2]))
        raise NotInstalled(f"{requirement} does not install on Python {version}: {lines[-1]}")
