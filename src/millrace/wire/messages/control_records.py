"""Control records: the key says the type, the value of a marker the epoch of its coordinator."""

from millrace.wire.schema import Message, int16, int32


class ControlRecordTypeSchema(Message, versions="0"):
    type: int = int16()


class EndTxnMarker(Message, versions="0"):
    coordinator_epoch: int = int32()
