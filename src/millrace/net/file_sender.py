"""Sending pieces of files to sockets straight from the page cache."""

from __future__ import annotations

import fcntl
import os

# The largest pipe that Linux grants to unprivileged users by default.
PIPE_BYTES = 1024 * 1024
# Up to this size `sendfile` is as good: the kernel moves that much at once.
SPLICED_BYTES = 64 * 1024
# The most that one `sendfile` call sends; without a limit it would last as long as the client keeps up.
SENDFILE_BYTES = 4 * 1024 * 1024


class FileSender:
    """Moves pages of files to sockets through a pipe, which is empty between two calls.

    `sendfile` does the same with a 64 KB pipe inside the kernel, looks the file up again each time it fills
    the pipe, and ends every piece with a packet that is not full. Owned by the broker loop; not thread-safe.
    """

    __slots__ = ("_descriptors", "_is_closed")

    def __init__(self) -> None:
        # The two ends of the pipe and /dev/null for leftovers, opened when first needed.
        self._descriptors: list[int] = []
        self._is_closed = not hasattr(os, "splice")

    def send(self, sock: int, file: int, position: int, length: int, *, more: bool) -> int:
        """Send as much as the socket takes and return how much; `more` announces that something follows."""
        if length <= SPLICED_BYTES or not (self._descriptors or self._open()):
            return os.sendfile(sock, file, position, min(length, SENDFILE_BYTES))
        source, sink, nowhere = self._descriptors
        waiting = filled = os.splice(file, sink, min(length, PIPE_BYTES), position)
        try:
            # The kernel fills the last packet with what follows.
            flags = os.SPLICE_F_MORE if more or filled < length else 0
            waiting -= os.splice(source, sock, filled, flags=flags) if filled else 0
            return filled - waiting
        finally:
            # The next piece may be for another client.
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
                # Too many open files or too many pipes: `sendfile` serves from now on.
                self.close()
        return bool(self._descriptors)

    def close(self) -> None:
        """Close the pipe; later pieces are sent without it."""
        self._is_closed = True
        while self._descriptors:
            os.close(self._descriptors.pop())
