"""Child processes that are started again, with back-off, when they fail.

A child is a fork of this process, which is small and has one thread: it starts at once, and shares the memory
of the modules that are loaded. Children end when this process does, however it ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self

logger = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS = 0.5
LONGEST_BACKOFF_SECONDS = 30.0
# A child that lives this long has started well: its next failure is the first again.
HEALTHY_SECONDS = 60.0
# A supervisor waits for its topologies, which commit first.
STOP_SECONDS = 60.0
WATCH_SECONDS = 0.5
STOPPING = (signal.SIGINT, signal.SIGTERM)


class Child:
    """One child process and its history."""

    def __init__(self, name: str, run: Callable[[], object]) -> None:
        self.name = name
        self.run = run
        """Runs in the child until SIGTERM; the result is the exit code, or None for 0."""
        self.pid: int | None = None
        self.exit_code: int | None = None
        self.failures = 0
        self.started = 0.0
        self.next_start = 0.0

    def ended(self, code: int, now: float) -> float:
        """Note the end of the process; returns the seconds until its next start."""
        self.pid, self.exit_code = None, code
        self.failures = 1 if now - self.started > HEALTHY_SECONDS else self.failures + 1
        backoff = min(FIRST_BACKOFF_SECONDS * 2.0 ** (self.failures - 1), LONGEST_BACKOFF_SECONDS)
        self.next_start = now + backoff
        return backoff


class Children:
    """The children of this process for the length of a block. Owned by the main thread.

    Signals are noted from the beginning of the block, so that none is lost while the children start.
    """

    def __init__(self) -> None:
        self._children: list[Child] = []
        self._wakeup = _Wakeup()
        # The write end is open in this process alone: when it ends, the children read an end of file.
        self._lifeline, self._held = os.pipe()

    def __enter__(self) -> Self:
        self._wakeup.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        self._wakeup.close()

    def start(self, name: str, run: Callable[[], object]) -> Child:
        """Start a child, and start it again whenever it ends."""
        child = Child(name, run)
        self._children.append(child)
        self._fork(child)
        return child

    def _fork(self, child: Child) -> None:
        child.started = time.monotonic()
        sys.stdout.flush()
        sys.stderr.flush()
        # A signal that reaches the child before it has handlers of its own waits until then.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        try:
            pid = os.fork()
            if pid == 0:
                self._become(child)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        child.pid = pid

    def _become(self, child: Child) -> NoReturn:
        """The life of the child process."""
        code = 1
        try:
            # Ctrl-C reaches this process's parent alone, which stops its children in order.
            os.setpgid(0, 0)
            self._wakeup.close(signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
            os.close(self._held)
            _set_process_name(f"millrace-{child.name}")
            threading.Thread(target=_end_with_parent, args=(self._lifeline,), daemon=True).start()
            result = child.run()
            code = result if isinstance(result, int) else 0
        except SystemExit as exit:
            code = exit.code if isinstance(exit.code, int) else 1
        except BaseException:
            logger.exception("%s failed", child.name)
        finally:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def run(self) -> None:
        """Watch the children until SIGINT or SIGTERM."""
        while not self._wakeup.stopped:
            self._watch()
            self._wakeup.wait(WATCH_SECONDS)

    def _watch(self) -> None:
        now = time.monotonic()
        for child in self._children:
            if child.pid is not None:
                code = _reap(child.pid, os.WNOHANG)
                if code is not None:
                    backoff = child.ended(code, now)
                    logger.warning(
                        "%s ended with %s; it starts again in %.1f s", child.name, _described(code), backoff
                    )
            elif now >= child.next_start:
                self._fork(child)

    def stop(self) -> None:
        """Stop the children, the last started first; each has some time to end."""
        for child in reversed(self._children):
            self._stop(child)

    def _stop(self, child: Child) -> None:
        if child.pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while (code := _reap(child.pid, os.WNOHANG)) is None:
            if time.monotonic() > deadline:
                logger.warning("%s does not stop; it is killed", child.name)
                os.kill(child.pid, signal.SIGKILL)
                code = _reap(child.pid, 0)
                break
            time.sleep(0.01)
        child.pid, child.exit_code = None, code


class _Wakeup:
    """Signals as bytes in a pipe, so that a wait ends with the first of them."""

    NUMBERS = (*STOPPING, signal.SIGCHLD)

    def __init__(self) -> None:
        self.stopped = False
        self._before: dict[int, Any] = {}
        self._read = self._write = -1

    def open(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._before = {number: signal.signal(number, self._note) for number in self.NUMBERS}
        signal.set_wakeup_fd(self._write)

    def close(self, handler: Any = None) -> None:
        """Restore the handlers, or set this one."""
        signal.set_wakeup_fd(-1)
        for number, before in self._before.items():
            signal.signal(number, before if handler is None else handler)
        os.close(self._read)
        os.close(self._write)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.stopped = self.stopped or number in STOPPING

    def wait(self, seconds: float) -> None:
        if self.stopped:
            return
        ready, _, _ = select.select([self._read], [], [], seconds)
        if ready:
            os.read(self._read, 1024)


def _reap(pid: int, options: int) -> int | None:
    """The exit code of a child that has ended, negative if a signal ended it; None if it runs."""
    ended, status = os.waitpid(pid, options)
    return None if ended == 0 else os.waitstatus_to_exitcode(status)


def _described(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _end_with_parent(lifeline: int) -> None:
    """Stop this process when its parent has ended."""
    while os.read(lifeline, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _set_process_name(name: str) -> None:
    """Name this process for `ps` and `top`, where the system allows it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name)
