"""Finds and runs projects of Spark's declarative pipelines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from millrace.pipelines.errors import PipelineError

SPEC_NAMES = ("spark-pipeline.yml", "spark-pipeline.yaml")
BOOTSTRAP_SETTING = "spark.millrace.bootstrap"
INTERRUPTED = 130


def find_project(path: str | Path) -> Path | None:
    """Return the spec of a project, given the spec or its directory; None if the path is neither."""
    given = Path(path)
    if given.suffix in (".yml", ".yaml"):
        return given
    found = [given / name for name in SPEC_NAMES if (given / name).is_file()]
    if len(found) > 1:
        raise PipelineError(f"{given} has a {' and a '.join(SPEC_NAMES)}; remove one, or name the one to run")
    return found[0] if found else None


def run_project(
    spec: Path,
    *,
    bootstrap: str,
    master: str | None = None,
    dry_run: bool = False,
    full_refresh: Sequence[str] = (),
    full_refresh_all: bool = False,
    refresh: Sequence[str] = (),
    conf: Mapping[str, str] | None = None,
) -> int:
    """Bring the datasets and sinks of a project up to date with the log; return the process's exit code.

    `dry_run` only checks the graph. `refresh` names the datasets to update, if not all. `full_refresh` names
    those to empty and rebuild. `conf` are Spark settings; the `configuration` of the project overrides them.
    """
    if not spec.is_file():
        raise PipelineError(f"{spec} does not exist; give a spark-pipeline.yml or its directory")
    if full_refresh_all and (full_refresh or refresh):
        raise PipelineError(
            "a full refresh of everything takes no names; drop the names, or --full-refresh-all"
        )
    if dry_run and (full_refresh_all or full_refresh or refresh):
        raise PipelineError("a dry run refreshes nothing; drop --dry-run, or the refresh options")
    request = {
        "spec": str(spec.absolute()),
        "bootstrap": bootstrap,
        "master": master,
        "dry_run": dry_run,
        "full_refresh": list(full_refresh),
        "full_refresh_all": full_refresh_all,
        "refresh": list(refresh),
        "conf": dict(conf or {}),
    }
    return _run_in_process(json.dumps(request).encode())


def _run_in_process(request: bytes) -> int:
    """Run in another process: a process that uses Spark Connect can use nothing else of Spark."""
    read_end, write_end = os.pipe()
    command = [sys.executable, "-m", "millrace.pipelines.declarative.process", str(write_end)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[write_end])
    os.close(write_end)
    with process, os.fdopen(read_end) as errors:
        assert process.stdin is not None
        # Its stdin stays open: the process ends when this one dies and closes it.
        process.stdin.write(request + b"\n")
        process.stdin.flush()
        try:
            code = process.wait()
        except KeyboardInterrupt:
            # Ctrl-C went to both processes; wait until the other one has cleaned up.
            process.wait()
            return INTERRUPTED
        error = errors.read()
    if error:
        raise PipelineError(error)
    return INTERRUPTED if code == -signal.SIGINT else code
