"""Keeps ISRs true: asks the controller to add replicas that caught up and to drop those that lag."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping

from millrace.cluster.controller import IsrRequest
from millrace.errors import Error, KafkaError
from millrace.replication.partition import IsrProposal, Partition

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.2

Key = tuple[bytes, int]
Alter = Callable[[Mapping[Key, IsrRequest]], Awaitable[Mapping[Key, Error]]]
"""Asks the controller, which answers for each partition."""
MayJoin = Callable[[int, int], bool]
"""Whether the controller would let a broker, in the life of an epoch, join an ISR."""

# The state before still holds. After other errors the next image tells.
REFUSED = frozenset({Error.INELIGIBLE_REPLICA, Error.INVALID_REQUEST})


class IsrUpkeep:
    """Owned by the broker loop; not thread-safe."""

    def __init__(
        self,
        partitions: Callable[[], Iterable[Partition]],
        *,
        node_id: int,
        max_lag_seconds: float,
        broker_epoch: Callable[[], int],
        may_join: MayJoin,
        alter: Alter,
    ) -> None:
        """`partitions` are all that this broker hosts."""
        self._partitions = partitions
        self._node_id = node_id
        self._max_lag_seconds = max_lag_seconds
        self._broker_epoch = broker_epoch
        self._may_join = may_join
        self._alter = alter
        self._proposals: dict[Partition, IsrProposal] = {}
        self._caught_up: set[Partition] = set()
        self._wakened = asyncio.Event()

    def noticed(self, partition: Partition) -> None:
        """A replica that is not in sync fetches, and may have caught up."""
        self._caught_up.add(partition)
        self._wakened.set()

    async def run(self) -> None:
        """Look for lagging replicas at half of their time, and for those that caught up at once."""
        next_look = 0.0
        while True:
            if not self._proposals and not self._caught_up:
                self._wakened.clear()
                try:
                    # Not wait_for, which may lose a cancellation in Python 3.11.
                    async with asyncio.timeout(self._max_lag_seconds / 2):
                        await self._wakened.wait()
                except TimeoutError:
                    next_look = 0.0
            now = time.monotonic()
            self._look(self._caught_up, now)
            self._caught_up = set()
            if now >= next_look:
                self._look(self._partitions(), now)
                next_look = now + self._max_lag_seconds / 2
            if self._proposals and not await self._ask():
                await asyncio.sleep(RETRY_SECONDS)

    def _look(self, partitions: Iterable[Partition], now: float) -> None:
        for partition in partitions:
            proposal = partition.propose_isr(now, self._max_lag_seconds, self._may_join)
            if proposal is not None:
                self._proposals[partition] = proposal

    async def _ask(self) -> bool:
        """Send all proposals; returns whether each has its answer."""
        # Those of a leader or a state that is past are answered by the image.
        asked = {
            partition: proposal
            for partition, proposal in self._proposals.items()
            if partition.pending_isr == proposal
        }
        self._proposals = dict(asked)
        if not asked:
            return True
        epoch = self._broker_epoch()
        requests = {
            (partition.topic_id, partition.index): IsrRequest(
                proposal.leader_epoch,
                proposal.partition_epoch,
                {self._node_id: epoch, **proposal.followers},
            )
            for partition, proposal in asked.items()
        }
        try:
            outcomes = await self._alter(requests)
        except KafkaError as error:
            logger.info("the controller cannot be asked for replicas in sync yet: %s", error)
            return False
        for partition, proposal in asked.items():
            outcome = outcomes.get((partition.topic_id, partition.index), Error.UNKNOWN_SERVER_ERROR)
            if outcome is Error.NONE or outcome in REFUSED:
                self._proposals.pop(partition, None)
            if outcome in REFUSED:
                partition.withdraw_isr(proposal)
            elif outcome is not Error.NONE:
                logger.info("%r: the controller answers %s", partition, outcome.name)
        return not self._proposals
