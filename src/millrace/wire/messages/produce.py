"""Produce v3-13. v5: log start offset. v8: errors per record. v9: flexible. v10: where the leader went.

v13 names topics by id.
"""

from millrace.wire.messages.current_leader import LeaderIdAndEpoch, NodeEndpoint
from millrace.wire.schema import (
    Records,
    Request,
    Response,
    Struct,
    array,
    int16,
    int32,
    int64,
    nested,
    records,
    string,
    uuid,
)


class PartitionProduceData(Struct):
    index: int = int32()
    records: Records = records(nullable=True)


class TopicProduceData(Struct):
    name: str = string("3-12")
    topic_id: bytes = uuid("13+")
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Request, key=0, versions="3-13", flexible="9+"):
    transactional_id: str | None = string(nullable=True, default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = int32()
    batch_index_error_message: str | None = string(nullable=True, default=None)


class PartitionProduceResponse(Struct):
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+")
    error_message: str | None = string("8+", nullable=True, default=None)
    current_leader: LeaderIdAndEpoch | None = nested(LeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(Struct):
    name: str = string("3-12")
    topic_id: bytes = uuid("13+")
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class ProduceResponse(Response, to=ProduceRequest):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32()
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)
