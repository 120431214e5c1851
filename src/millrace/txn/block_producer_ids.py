"""Producer ids of a broker in a cluster: from blocks that the controller gives to one broker each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from millrace.errors import Error, KafkaError

logger = logging.getLogger(__name__)

# The next block is asked for when fewer ids are left.
FEW = 200
RETRY_SECONDS = 0.2

TakeBlock = Callable[[], Awaitable[tuple[int, int]]]
"""Asks the controller for a block: its first id, and their number."""


class BlockProducerIds:
    """Owned by the broker loop; not thread-safe. Ids are given out at once; blocks are fetched ahead."""

    is_ready = True

    def __init__(self, take_block: TakeBlock) -> None:
        self._take_block = take_block
        self._blocks: list[range] = []
        self._taking: asyncio.Task[None] | None = None

    def begin_after(self, in_use: Iterable[int]) -> None:
        """Ids in use are in blocks that were given out before."""

    def skip_past(self, producer_id: int) -> None:
        """Never give out an id up to this one: a producer has it."""
        self._blocks = [block[max(0, producer_id + 1 - block.start) :] for block in self._blocks if block]

    def allocate(self) -> int:
        """An id that was never given before; raises COORDINATOR_LOAD_IN_PROGRESS while a block is awaited."""
        self._blocks = [block for block in self._blocks if block]
        if sum(map(len, self._blocks)) < FEW:
            self.prepare()
        if not self._blocks:
            raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS, "Producer ids are being fetched.")
        producer_id = self._blocks[0][0]
        self._blocks[0] = self._blocks[0][1:]
        return producer_id

    def prepare(self) -> None:
        """Ask for the next block, unless that is under way."""
        if self._taking is None or self._taking.done():
            self._taking = asyncio.get_running_loop().create_task(self._take())

    async def _take(self) -> None:
        while True:
            try:
                start, count = await self._take_block()
            except KafkaError as error:
                logger.info("no producer ids yet: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self._blocks.append(range(start, start + count))
                return

    def stop(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
