"""A disk that fails when a test says so."""

import errno
import os
from collections.abc import Sequence

from millrace.disk import Bytes, Disk


class FaultyDisk(Disk):
    """A real disk whose writes and fsyncs can be made to fail."""

    __slots__ = ("_fsync_error", "_room", "_write_error", "fsyncs", "writes")

    def __init__(self) -> None:
        self.writes = 0
        self.fsyncs = 0
        self._write_error: int | None = None
        self._fsync_error: int | None = None
        self._room: int | None = None

    def fail_next_write(self, error: int = errno.EIO) -> None:
        """Make the next write fail before it writes anything."""
        self._write_error = error

    def fail_next_fsync(self, error: int = errno.EIO) -> None:
        """Make the next fsync fail."""
        self._fsync_error = error

    def fill(self, room: int = 0) -> None:
        """Leave only `room` bytes: the write that crosses it is cut short and fails, as on a full disk."""
        self._room = room

    def free(self) -> None:
        """Give the disk its space back."""
        self._room = None

    def write(self, fd: int, buffers: Sequence[Bytes]) -> None:
        """Write as far as the faults allow."""
        self.writes += 1
        if self._write_error is not None:
            error, self._write_error = self._write_error, None
            raise OSError(error, os.strerror(error))
        if self._room is not None:
            content = b"".join(buffers)
            if len(content) > self._room:
                os.write(fd, content[: self._room])
                self._room = 0
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._room -= len(content)
        super().write(fd, buffers)

    def fsync(self, fd: int) -> None:
        """Sync unless a fault is due."""
        self.fsyncs += 1
        if self._fsync_error is not None:
            error, self._fsync_error = self._fsync_error, None
            raise OSError(error, os.strerror(error))
        super().fsync(fd)
