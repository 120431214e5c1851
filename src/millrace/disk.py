"""The disk seam: every write that must not get lost goes through a Disk, so that tests can make it fail."""

import io
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TypeAlias

Bytes: TypeAlias = bytes | bytearray | memoryview

_KEEP_SIZE = 1


class OpenFile(io.FileIO):
    """An unbuffered file that closes with its last reference.

    Responses that are being sent hold a reference, so a segment may drop its file at any time.
    """

    def __del__(self) -> None:
        self.close()


class Disk:
    """The machine's file system."""

    __slots__ = ()

    def open_for_append(self, path: Path, *, create: bool = False) -> OpenFile:
        """Open a file for reading and appending; every write lands at its current end."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return OpenFile(os.open(path, flags, 0o644), "rb+")

    def open_for_reading(self, path: Path) -> OpenFile:
        """Open a file that is no longer written to."""
        return OpenFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), "rb")

    def write(self, fd: int, buffers: Sequence[Bytes]) -> None:
        """Append all buffers, with one call if the kernel accepts them; raises OSError if it fails."""
        written = os.writev(fd, buffers)
        if written != sum(map(len, buffers)):
            self._write_rest(fd, b"".join(buffers)[written:])

    def _write_rest(self, fd: int, rest: bytes) -> None:
        # A short write is the first sign of a full disk: the next attempt raises the reason.
        while rest:
            rest = rest[os.write(fd, rest) :]

    def allocate(self, fd: int, size: int) -> None:
        """Allocate blocks for a file that will have this size; its present size does not change.

        If the file system cannot or has no space, nothing happens: the write itself reports the error.
        """
        fallocate = _fallocate()
        if fallocate is not None:
            fallocate(fd, _KEEP_SIZE, 0, size)

    def read_at(self, path: Path, position: int, length: int) -> bytes:
        """Read a piece of a file that is not kept open; less if the file ends before."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(fd, length, position)
        finally:
            os.close(fd)

    def write_at(self, path: Path, position: int, content: Bytes) -> None:
        """Write a piece of a file, creating the file if needed; everything after the piece is cut off."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.lseek(fd, position, os.SEEK_SET)
            self.write(fd, [content])
            self.truncate(fd, position + len(content))
        finally:
            os.close(fd)

    def truncate(self, fd: int, size: int) -> None:
        """Cut an open file to size."""
        os.ftruncate(fd, size)

    def fsync(self, fd: int) -> None:
        """Make a file's content durable."""
        os.fsync(fd)

    def forget_pages(self, fd: int) -> None:
        """Drop a file's pages from the page cache, except those not yet written to disk."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def fsync_directory(self, directory: Path) -> None:
        """Make creations, renames and removals in a directory durable."""
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, source: Path, target: Path) -> None:
        """Move a file or directory, replacing a target file."""
        source.replace(target)

    def remove(self, path: Path) -> None:
        """Delete a file if it exists."""
        path.unlink(missing_ok=True)

    def replace(self, path: Path, content: bytes, *, durable: bool = True, mode: int = 0o644) -> None:
        """Replace a file atomically: a reader sees the old content or the new, never a part."""
        temporary = path.with_name(path.name + ".tmp")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        try:
            self.write(fd, [content])
            if durable:
                self.fsync(fd)
        finally:
            os.close(fd)
        self.rename(temporary, path)
        if durable:
            self.fsync_directory(path.parent)


@cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    """Linux's fallocate; Python offers only the form that changes the file's size."""
    try:
        # A large import, which only topics with `preallocate` need.
        import ctypes

        function = ctypes.CDLL(None).fallocate
    except (ImportError, OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return function
