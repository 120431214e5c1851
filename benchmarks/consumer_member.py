"""A member of a consumer group (KIP-848) over its own connection: heartbeats, and no more."""

import base64
import uuid

from benchmarks.wire_client import WireClient, expect_success
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
    """Is told its partitions and takes or gives them up at once."""

    def __init__(self, client: WireClient, group: str, topic: str) -> None:
        self.member_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self.epoch = JOINING
        self.owned: Owned = frozenset()
        self._client = client
        self._group = group
        self._topic = topic

    async def join(self) -> None:
        await self._say(
            ConsumerGroupHeartbeatRequest(
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                subscribed_topic_names=[self._topic],
                topic_partitions=[],
            )
        )

    async def heartbeat(self) -> None:
        """Tell the coordinator that the member lives, and do what it answers."""
        await self._say(ConsumerGroupHeartbeatRequest())

    async def leave(self, client: WireClient) -> None:
        """Leave the group, through any connection."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group, member_id=self.member_id, member_epoch=LEAVING
        )
        response = await client.ask(request, ConsumerGroupHeartbeatResponse, HEARTBEAT_VERSION)
        expect_success(response.error_code)

    async def _say(self, request: ConsumerGroupHeartbeatRequest) -> None:
        """Heartbeat, and again as long as that changes what the member owns."""
        while True:
            request.group_id, request.member_id = self._group, self.member_id
            request.member_epoch = self.epoch
            response = await self._client.ask(request, ConsumerGroupHeartbeatResponse, HEARTBEAT_VERSION)
            expect_success(response.error_code)
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
