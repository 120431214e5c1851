"""The leader of a partition, in responses of brokers that do not lead it (KIP-951)."""

from millrace.wire.schema import Struct, int32, string


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable=True, default=None)
