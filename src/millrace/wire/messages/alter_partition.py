"""AlterPartition v2-3, flexible: a leader asks for other replicas in sync. v3: broker epochs."""

from millrace.wire.schema import Request, Response, Struct, array, int8, int16, int32, int64, uuid


class BrokerState(Struct):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


class AlteredPartition(Struct):
    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: list[int] = array(int32, "2")
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+")
    leader_recovery_state: int = int8()
    partition_epoch: int = int32()


class AlteredTopic(Struct):
    topic_id: bytes = uuid()
    partitions: list[AlteredPartition] = array(AlteredPartition)


class AlterPartitionRequest(Request, key=56, versions="2-3", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[AlteredTopic] = array(AlteredTopic)


class AlteredPartitionResult(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    leader_recovery_state: int = int8()
    partition_epoch: int = int32()


class AlteredTopicResult(Struct):
    topic_id: bytes = uuid()
    partitions: list[AlteredPartitionResult] = array(AlteredPartitionResult)


class AlterPartitionResponse(Response, to=AlterPartitionRequest):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[AlteredTopicResult] = array(AlteredTopicResult)
