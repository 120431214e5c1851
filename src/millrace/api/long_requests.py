"""Places for the few long requests that are handled at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

LONG_REQUESTS_AT_ONCE = 4


class RequestMemory(Protocol):
    """The count of bytes that requests hold, which the network bounds."""

    def hold(self, size: int) -> None: ...

    def release(self, size: int) -> None: ...


class LongRequests(asyncio.Semaphore):
    """Each place is a share of every pass of the loop, and of the memory. Owned by the broker loop."""

    def __init__(self, memory: RequestMemory) -> None:
        super().__init__(LONG_REQUESTS_AT_ONCE)
        self._memory = memory

    @asynccontextmanager
    async def place_for(self, frame: bytes) -> AsyncIterator[None]:
        """A place for a request that is not decoded yet. Until it has one, its frame counts as memory."""
        self._memory.hold(len(frame))
        try:
            await self.acquire()
        finally:
            self._memory.release(len(frame))
        try:
            yield
        finally:
            self.release()
