"""Processes of this machine, told apart even if the system uses a pid again."""

from __future__ import annotations

import os
from pathlib import Path


def process_started(pid: int) -> str | None:
    """The moment at which a process started, in the system's own units; None if it does not run."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return None if Path("/proc/self").exists() else _started_without_proc(pid)
    except ProcessLookupError:
        return None
    # A zombie has ended; its parent has not asked for its exit code yet.
    return None if fields[0] == "Z" else fields[19]


def _started_without_proc(pid: int) -> str | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return ""


def is_running(pid: int, started: str) -> bool:
    """Whether the process that started then still runs."""
    return process_started(pid) == started
