"""Consumers of the classic protocol that can share a group with those of the consumer protocol."""

import struct

from millrace.errors import Error
from millrace.groups.upgrade import read_assignment
from millrace.wire.codec import encode
from millrace.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)

from .members import Coordinator, Member

VERSION = 1


def assignment(*indexes: int, user_data: bytes | None = None) -> bytes:
    topics = [TopicPartition(topic="orders", partitions=list(indexes))] if indexes else []
    value = ConsumerProtocolAssignment(assigned_partitions=topics, user_data=user_data)
    return struct.pack(">h", VERSION) + encode(value, VERSION)


def subscription(*indexes: int) -> bytes:
    """The subscription of a classic consumer that owns some partitions."""
    owned = [TopicPartition(topic="orders", partitions=list(indexes))] if indexes else []
    value = ConsumerProtocolSubscription(topics=["orders"], owned_partitions=owned)
    return struct.pack(">h", VERSION) + encode(value, VERSION)


class ClassicConsumer(Member):
    """A consumer of the classic protocol that rebalances cooperatively: it revokes, and joins again."""

    def __init__(
        self,
        coordinator: Coordinator,
        *,
        instance: str | None = None,
        assignor: str = "cooperative-sticky",
    ) -> None:
        super().__init__(coordinator, instance=instance)
        self._assignor = assignor
        self.owned: set[int] = set()
        self.own()

    def own(self, *indexes: int) -> None:
        self.owned = set(indexes)
        self.offers = [(self._assignor, subscription(*indexes))]

    def follow(self) -> Error:
        """Heartbeat, and when told so rejoin until there is an assignment to take."""
        error = self.heartbeat()
        if error is Error.REBALANCE_IN_PROGRESS:
            assert self.enter().error is Error.NONE
            if self.sync().error is Error.NONE:
                self.take()
        return error

    def take(self) -> None:
        given = {
            index
            for topic in read_assignment(self.assignment or b"").assigned_partitions
            for index in topic.partitions
        }
        self.own(*given)
