"""ControlledShutdown v3, flexible: a broker that is about to stop asks the controller to move its leaders."""

from millrace.wire.schema import Request, Response, Struct, array, int16, int32, int64, string


class ControlledShutdownRequest(Request, key=7, versions="3", flexible="3+"):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


class RemainingPartition(Struct):
    topic_name: str = string()
    partition_index: int = int32()


class ControlledShutdownResponse(Response, to=ControlledShutdownRequest):
    error_code: int = int16()
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition)
