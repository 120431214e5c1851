"""One broker at a time per data directory: in this process, in others, and across kills and forks."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.storage import directory_lock
from millrace.storage.directory_lock import LOCK_FILE, DirectoryLock, LogDirInUse

TAKE_AND_WAIT = """
import sys, time
from pathlib import Path
from millrace.storage.directory_lock import DirectoryLock
lock = DirectoryLock(Path(sys.argv[1]))
print("taken", flush=True)
sys.stdin.readline()
lock.release()
print("released", flush=True)
sys.stdin.readline()
"""


class OtherProcess:
    """A process that takes the lock, and releases it when told."""

    def __init__(self, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", TAKE_AND_WAIT, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def reads(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def proceed(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[OtherProcess]:
    other = OtherProcess(tmp_path)
    yield other
    other.process.kill()
    other.process.communicate()


def test_a_second_holder_in_the_same_process_is_refused_and_costs_the_first_nothing(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    with pytest.raises(LogDirInUse, match=f"{tmp_path} is in use by another broker"):
        DirectoryLock(tmp_path)
    # Had the second one opened and closed the file, the first would have lost it to any other process.
    other = OtherProcess(tmp_path)
    assert other.reads() == ""
    _, complaint = other.process.communicate()
    assert "is in use by another broker" in complaint
    lock.release()
    DirectoryLock(tmp_path).release()


def test_a_directory_is_known_by_its_other_names(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    alias = tmp_path.with_name("alias")
    alias.symlink_to(tmp_path)
    with pytest.raises(LogDirInUse):
        DirectoryLock(alias)
    lock.release()


def test_another_process_is_refused_and_told_so(tmp_path: Path, other: OtherProcess) -> None:
    assert other.reads() == "taken"
    began = time.monotonic()
    with pytest.raises(LogDirInUse, match=f"{tmp_path} is in use by another broker"):
        DirectoryLock(tmp_path)
    assert time.monotonic() - began >= directory_lock.PATIENCE_SECONDS


def test_a_lock_that_is_released_within_the_second_is_obtained(
    tmp_path: Path, other: OtherProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert other.reads() == "taken"
    monkeypatch.setattr(directory_lock, "PATIENCE_SECONDS", 60)
    refused_once = threading.Event()
    acquire = DirectoryLock._acquire

    def attempt(lock: DirectoryLock) -> bool:
        acquired = acquire(lock)
        if not acquired:
            refused_once.set()
        return acquired

    monkeypatch.setattr(DirectoryLock, "_acquire", attempt)
    obtained: list[DirectoryLock] = []
    taker = threading.Thread(target=lambda: obtained.append(DirectoryLock(tmp_path)))
    taker.start()
    assert refused_once.wait(30)
    other.proceed()
    taker.join(30)
    (lock,) = obtained
    lock.release()


def test_a_killed_holder_leaves_the_directory_to_others(tmp_path: Path, other: OtherProcess) -> None:
    assert other.reads() == "taken"
    other.process.kill()
    DirectoryLock(tmp_path).release()


def test_a_child_that_outlives_a_killed_holder_does_not_keep_the_lock(tmp_path: Path) -> None:
    """A fork has copies of all descriptors until it executes something, and may be slow to do so."""
    code = """
import os, sys, signal
from pathlib import Path
from millrace.storage.directory_lock import DirectoryLock
lock = DirectoryLock(Path(sys.argv[1]))
child = os.fork()
if child == 0:
    signal.pause()
print(child, flush=True)
signal.pause()
"""
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    try:
        holder.kill()
        holder.wait()
        open_files = {path.readlink() for path in Path(f"/proc/{child}/fd").iterdir()}
        assert tmp_path / LOCK_FILE in open_files, "the child must hold the descriptor for this to count"
        DirectoryLock(tmp_path).release()
    finally:
        os.kill(child, signal.SIGKILL)
        holder.stdout.close()


def test_releasing_twice_does_not_release_the_next_holder(tmp_path: Path) -> None:
    first = DirectoryLock(tmp_path)
    first.release()
    second = DirectoryLock(tmp_path)
    first.release()
    with pytest.raises(LogDirInUse):
        DirectoryLock(tmp_path)
    second.release()
