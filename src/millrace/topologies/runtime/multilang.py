"""Storm's multilang protocol: JSON messages, each ended by a line `end`, over a program's pipes."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from millrace.topologies.model.component import TaskContext
from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.topology import Plan

END = b"end\n"
SHOWN_CHARACTERS = 200
STOP_SECONDS = 5.0
_LEVELS = {
    0: logging.DEBUG,
    1: logging.DEBUG,
    2: logging.INFO,
    3: logging.WARNING,
    4: logging.ERROR,
}


class Program:
    """A process that speaks the protocol. Two threads read and write, so its owner never waits for it."""

    def __init__(
        self,
        command: Sequence[str],
        context: TaskContext,
        *,
        received: Callable[[Any], None],
    ) -> None:
        """`received` gets each message, and a TopologyError at the program's end, on another thread."""
        self._label = f"{context.component}, task {context.task}"
        self._command = command
        self._received = received
        self._outgoing: SimpleQueue[Any] = SimpleQueue()
        self._closing = False
        self._pid_directory = tempfile.TemporaryDirectory(prefix="millrace-shell-")
        try:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=context.directory or None,
            )
        except OSError as error:
            raise TopologyError(f"{self._label}: {command[0]} cannot be run: {error}") from error

    def start(self, plan: Plan, context: TaskContext, conf: dict[str, Any]) -> None:
        """Shake hands, and begin to read and write."""
        self._write(
            {"conf": _plain(conf), "context": _context(plan, context), "pidDir": self._pid_directory.name}
        )
        answer = self._read()
        if not isinstance(answer, dict) or "pid" not in answer:
            raise TopologyError(f"{self._label}: the program began with {answer!r}, not with its pid")
        for work in (self._read_all, self._write_all):
            threading.Thread(target=work, name=f"{self._label} {work.__name__}", daemon=True).start()

    def send(self, message: Any) -> None:
        self._outgoing.put(message)

    def close(self) -> None:
        self._closing = True
        self._outgoing.put(None)
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._pid_directory.cleanup()

    def _write_all(self) -> None:
        while (message := self._outgoing.get()) is not None:
            try:
                self._write(message)
            except OSError:
                return  # The reader notices that the program has ended.

    def _write(self, message: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n" + END)
        self._process.stdin.flush()

    def _read_all(self) -> None:
        try:
            while True:
                self._received(self._read())
        except TopologyError as error:
            if not self._closing:
                self._received(error)

    def _read(self) -> Any:
        assert self._process.stdout is not None
        lines: list[bytes] = []
        while (line := self._process.stdout.readline()) != END:
            if not line:
                code = self._process.wait()
                raise TopologyError(f"{self._label}: the program {self._command[0]} ended with {code}")
            lines.append(line)
        try:
            return json.loads(b"".join(lines))
        except ValueError:
            shown = b"".join(lines).decode("utf-8", "replace").strip()[:SHOWN_CHARACTERS]
            raise TopologyError(
                f"{self._label}: the program printed {shown!r}, which is no message; standard output is "
                "the protocol's: use its log command, or standard error"
            ) from None


def log_level(message: dict[str, Any]) -> int:
    return _LEVELS.get(message.get("level", 2), logging.INFO)


def _context(plan: Plan, context: TaskContext) -> dict[str, Any]:
    component = context.component
    targets: dict[str, dict[str, Any]] = {}
    for edge in plan.edges_from(component):
        kind = str(edge.grouping.kind).upper().replace(" ", "_")
        targets.setdefault(edge.stream.name, {})[edge.target] = {"type": kind}
    fields: dict[str, dict[str, Any]] = {}
    for edge in plan.edges_to(component):
        fields.setdefault(edge.source, {})[edge.stream.name] = list(edge.stream.fields)
    streams = plan.components[component].streams
    return {
        "taskid": context.task,
        "componentid": component,
        "task->component": {str(task): name for name, tasks in plan.tasks.items() for task in tasks},
        "stream->target->grouping": targets,
        "streams": list(streams),
        "stream->outputfields": {name: list(stream.fields) for name, stream in streams.items()},
        "source->stream->fields": fields,
    }


def _plain(conf: dict[str, Any]) -> dict[str, Any]:
    """The settings that can be written as JSON."""
    found = {}
    for name, value in conf.items():
        try:
            found[name] = json.loads(json.dumps(value))
        except (TypeError, ValueError):
            continue
    return found


def resolved(command: Sequence[str], directory: str) -> list[str]:
    """The command; a program that lies beside the topology's file is named by its path."""
    first, *rest = command
    beside = Path(directory) / first if directory else Path(first)
    return [str(beside) if os.sep not in first and beside.is_file() else first, *rest]
