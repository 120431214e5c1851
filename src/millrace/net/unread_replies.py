"""Memory for replies that clients have not read yet, bounded for the whole broker."""

from __future__ import annotations

import logging
import math
from typing import Protocol

from millrace.clock import Clock

logger = logging.getLogger(__name__)

# Once the limit is exceeded, connections are closed until this part of it is in use.
TARGET = 0.75
# Counted as read in advance: the speed of a client whose reply has just been sent is high at first, and falls
# quickly if it does not read.
HEAD_START_BYTES = 4 * 1024


class Reader(Protocol):
    """A connection whose client has replies to read."""

    @property
    def peer(self) -> str: ...

    def bytes_read(self) -> int:
        """The bytes that the client has taken so far."""

    def close(self, reason: str) -> None: ...


class _Account:
    """Unread bytes of one client, and the time and the bytes it had read when they began to wait."""

    __slots__ = ("read_before", "since", "size")

    def __init__(self, since: float, read_before: int) -> None:
        self.size = 0
        self.since = since
        self.read_before = read_before


class UnreadReplies:
    """Counts the reply bytes that wait for clients, and closes the slowest readers beyond `limit`.

    A reply larger than the limit is sent as long as it is the only one. Owned by the broker loop; not
    thread-safe.
    """

    __slots__ = ("_accounts", "_clock", "bytes_in_use", "limit")

    def __init__(self, limit: int, clock: Clock) -> None:
        self.limit: float = limit if limit >= 0 else math.inf
        self.bytes_in_use = 0
        self._clock = clock
        self._accounts: dict[Reader, _Account] = {}

    def __len__(self) -> int:
        return len(self._accounts)

    def hold(self, reader: Reader, size: int) -> None:
        """Note how many bytes wait for a client now. This may close connections, its own among them."""
        account = self._accounts.get(reader)
        if account is None:
            account = self._accounts[reader] = _Account(self._clock.monotonic(), reader.bytes_read())
        self.bytes_in_use += size - account.size
        account.size = size
        if self.bytes_in_use > self.limit:
            self._close_slowest()

    def release(self, reader: Reader) -> None:
        """Nothing waits for this client any more."""
        account = self._accounts.pop(reader, None)
        if account is not None:
            self.bytes_in_use -= account.size

    def _close_slowest(self) -> None:
        now = self._clock.monotonic()

        def bytes_per_second(reader: Reader) -> float:
            account = self._accounts[reader]
            read = reader.bytes_read() - account.read_before
            return (read + HEAD_START_BYTES) / (now - account.since + 0.001)

        *slowest, _ = sorted(self._accounts, key=bytes_per_second)
        for reader in slowest:
            if self.bytes_in_use <= TARGET * self.limit:
                return
            logger.warning(
                "closing the connection of %s: it is slow to read its responses while %d MiB wait to be read",
                reader.peer,
                self.bytes_in_use >> 20,
            )
            reader.close("slow to read")
