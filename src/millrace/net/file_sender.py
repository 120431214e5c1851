"""Sending pieces of files to sockets straight from the page cache."""

from __future__ import annotations

import fcntl
import os

# As much as a pipe may hold without privileges, unless the system says otherwise.
PIPE_BYTES = 1024 * 1024
# Below this a pipe of one's own gains nothing: it is what the kernel moves at once anyway.
SPLICED_BYTES = 64 * 1024
# Where there is no pipe: the most in one call, which goes on for as long as the client keeps up.
SENDFILE_BYTES = 4 * 1024 * 1024


class FileSender:
    """Moves pages of files to any connection by way of a pipe, which is empty between two calls.

    `sendfile` does the same with a pipe of 64 KB inside the kernel, looks the file up anew for each filling,
    and ends every piece with a packet that is not full. Owned by the broker loop; not thread-safe.
    """

    __slots__ = ("_descriptors", "_is_closed")

    def __init__(self) -> None:
        # The pipe's two ends and where leftovers go, opened when first needed.
        self._descriptors: list[int] = []
        self._is_closed = not hasattr(os, "splice")

    def send(self, sock: int, file: int, position: int, length: int, *, more: bool) -> int:
        """Send as much as the socket takes at once, and say how much; `more` is what follows behind it."""
        if length <= SPLICED_BYTES or not (self._descriptors or self._open()):
            return os.sendfile(sock, file, position, min(length, SENDFILE_BYTES))
        source, sink, nowhere = self._descriptors
        waiting = filled = os.splice(file, sink, min(length, PIPE_BYTES), position)
        try:
            # Packets are filled up from what comes next.
            flags = os.SPLICE_F_MORE if more or filled < length else 0
            waiting -= os.splice(source, sock, filled, flags=flags) if filled else 0
            return filled - waiting
        finally:
            # The next piece may be another client's.
            while waiting:
                waiting -= os.splice(source, nowhere, waiting)

    def _open(self) -> bool:
        """Open the pipe unless that has failed before; returns whether there is one."""
        if not self._is_closed:
            try:
                self._descriptors += os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
                self._descriptors.append(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC))
                fcntl.fcntl(self._descriptors[0], fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            except OSError:
                # Too many open files, or too many pipes: it goes without.
                self.close()
        return bool(self._descriptors)

    def close(self) -> None:
        """Let go of the pipe, for good."""
        self._is_closed = True
        while self._descriptors:
            os.close(self._descriptors.pop())
