"""A member of a consumer group (KIP-848) over its own connection: only its heartbeats."""

import base64
import uuid

from millrace.client import Connection
from millrace.errors import check
from millrace.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

HEARTBEAT_VERSION = 1
REBALANCE_TIMEOUT_MS = 60_000
JOINING, LEAVING = 0, -1

Owned = frozenset[tuple[bytes, int]]


class ConsumerMember:
    """Gets its partitions from the coordinator, and acquires or releases them at once."""

    def __init__(self, connection: Connection, group: str, topic: str) -> None:
        self.member_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self.epoch = JOINING
        self.owned: Owned = frozenset()
        self._connection = connection
        self._group = group
        self._topic = topic

    async def join(self) -> None:
        await self._send_heartbeats(
            ConsumerGroupHeartbeatRequest(
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                subscribed_topic_names=[self._topic],
                topic_partitions=[],
            )
        )

    async def heartbeat(self) -> None:
        """Send a heartbeat, and follow the response."""
        await self._send_heartbeats(ConsumerGroupHeartbeatRequest())

    async def leave(self, connection: Connection) -> None:
        """Leave the group, over any connection."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group, member_id=self.member_id, member_epoch=LEAVING
        )
        response = await connection.send_in(HEARTBEAT_VERSION, request, ConsumerGroupHeartbeatResponse)
        check(response.error_code)

    async def _send_heartbeats(self, request: ConsumerGroupHeartbeatRequest) -> None:
        """Send heartbeats until the assignment no longer changes."""
        while True:
            request.group_id, request.member_id = self._group, self.member_id
            request.member_epoch = self.epoch
            response = await self._connection.send_in(
                HEARTBEAT_VERSION, request, ConsumerGroupHeartbeatResponse
            )
            check(response.error_code)
            self.epoch = response.member_epoch
            if response.assignment is None:
                return
            assigned = _owned(response.assignment.topic_partitions)
            if assigned == self.owned:
                return
            self.owned = assigned
            request = ConsumerGroupHeartbeatRequest(topic_partitions=response.assignment.topic_partitions)


def _owned(topics: list[TopicPartitions]) -> Owned:
    return frozenset((topic.topic_id, partition) for topic in topics for partition in topic.partitions)
