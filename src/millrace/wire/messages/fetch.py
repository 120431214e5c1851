"""Fetch v4-18. v5: log start offset. v7: sessions. v9: leader epochs. v11: racks. v12: flexible.

v13 names topics by id; v15 moves the replica's id into a tagged struct; v16 tells where the leader went;
v17 adds directory ids; v18 adds the follower's high watermark.
"""

from millrace.wire.messages.current_leader import LeaderIdAndEpoch, NodeEndpoint
from millrace.wire.schema import (
    Records,
    Request,
    Response,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    nested,
    records,
    string,
    uuid,
)


class ReplicaState(Struct):
    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


class FetchPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid("17+", tag=0)
    high_watermark: int = int64("18+", tag=1, default=0x7FFFFFFFFFFFFFFF)


class FetchTopic(Struct):
    topic: str = string("4-12")
    topic_id: bytes = uuid("13+")
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    topic: str = string("7-12")
    topic_id: bytes = uuid("13+")
    partitions: list[int] = array(int32)


class FetchRequest(Request, key=1, versions="4-18", flexible="12+"):
    cluster_id: str | None = string("12+", nullable=True, tag=0, default=None)
    replica_id: int = int32("4-14", default=-1)
    replica_state: ReplicaState | None = nested(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2147483647)
    isolation_level: int = int8()
    session_id: int = int32("7+")
    session_epoch: int = int32("7+", default=-1)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+")


class EpochEndOffset(Struct):
    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class SnapshotId(Struct):
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Struct):
    producer_id: int = int64()
    first_offset: int = int64()


class PartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1)
    diverging_epoch: EpochEndOffset | None = nested(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch | None = nested(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId | None = nested(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(AbortedTransaction, nullable=True)
    preferred_read_replica: int = int32("11+", default=-1)
    records: Records = records(nullable=True)


class FetchableTopicResponse(Struct):
    topic: str = string("4-12")
    topic_id: bytes = uuid("13+")
    partitions: list[PartitionData] = array(PartitionData)


class FetchResponse(Response, to=FetchRequest):
    throttle_time_ms: int = int32()
    error_code: int = int16("7+")
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)
