"""Messages between consumers of classic groups: subscriptions v0-3 and assignments v0-3.

Subscriptions: v1 adds owned partitions, v2 the generation, v3 the rack.
"""

from millrace.wire.schema import Message, Struct, array, int32, octets, string


class TopicPartition(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class ConsumerProtocolSubscription(Message, versions="0-3"):
    topics: list[str] = array(string)
    user_data: bytes | None = octets(nullable=True, default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+")
    generation_id: int = int32("2+", default=-1)
    rack_id: str | None = string("3+", nullable=True, default=None)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = octets(nullable=True, default=None)
