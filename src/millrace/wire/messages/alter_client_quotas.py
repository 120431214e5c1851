"""AlterClientQuotas v0-1 (KIP-546). v1: flexible."""

from millrace.wire.schema import Request, Response, Struct, array, boolean, float64, int16, int32, string


class EntityData(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable=True)


class OpData(Struct):
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class EntryData(Struct):
    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


class AlterClientQuotasRequest(Request, key=49, versions="0-1", flexible="1+"):
    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()


class EntryResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    entity: list[EntityData] = array(EntityData)


class AlterClientQuotasResponse(Response, to=AlterClientQuotasRequest):
    throttle_time_ms: int = int32()
    entries: list[EntryResult] = array(EntryResult)
