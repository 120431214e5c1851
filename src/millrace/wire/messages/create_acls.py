"""CreateAcls v1-3. v2: flexible."""

from millrace.wire.messages.describe_acls import LITERAL
from millrace.wire.schema import Request, Response, Struct, array, int8, int16, int32, string


class AclCreation(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=LITERAL)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class CreateAclsRequest(Request, key=30, versions="1-3", flexible="2+"):
    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable=True)


class CreateAclsResponse(Response, to=CreateAclsRequest):
    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
