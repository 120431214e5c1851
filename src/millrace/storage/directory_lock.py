"""The lock of a data directory: one broker at a time, Apache Kafka's brokers included."""

import fcntl
import os
import threading
import time
from pathlib import Path

LOCK_FILE = ".lock"
# The kernel frees the lock of a killed process with its last resources, shortly after the process is gone.
PATIENCE_SECONDS = 1.0
_RETRY_SECONDS = 0.02

_FileIdentity = tuple[int, int]
"""Device and inode; an inode is not used again while a descriptor of it is open."""

_held: set[_FileIdentity] = set()
_mutex = threading.Lock()


class LogDirInUse(OSError):
    """Another broker has the data directory."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is in use by another broker")


class DirectoryLock:
    """Holds a directory from its creation to release(); thread-safe.

    A POSIX record lock, which unlike flock() is not shared with forked children. It has two weaknesses: it
    does not exclude another holder in this process, and closing any descriptor of the file in this process
    drops it. So the files that this process has locked are remembered, and not opened again.
    """

    def __init__(self, directory: Path) -> None:
        """Raises LogDirInUse: at once if this process has the directory, and soon if another process does."""
        self._directory = directory
        self._path = directory / LOCK_FILE
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._acquire():
            if time.monotonic() >= deadline:
                raise LogDirInUse(directory)
            time.sleep(_RETRY_SECONDS)

    def _acquire(self) -> bool:
        with _mutex:
            if self._path.exists() and _identity(self._path.stat()) in _held:
                raise LogDirInUse(self._directory)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                # POSIX leaves it to the system which of the two says that the lock is taken.
                os.close(descriptor)
                return False
            self._descriptor = descriptor
            self._identity = _identity(os.fstat(descriptor))
            _held.add(self._identity)
            return True

    def release(self) -> None:
        """Let another broker have the directory; a second call does nothing."""
        with _mutex:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
                _held.discard(self._identity)


def _identity(status: os.stat_result) -> _FileIdentity:
    return status.st_dev, status.st_ino
