"""AlterUserScramCredentials v0 (KIP-554)."""

from millrace.wire.schema import Request, Response, Struct, array, int8, int16, int32, octets, string


class ScramCredentialDeletion(Struct):
    name: str = string()
    mechanism: int = int8()


class ScramCredentialUpsertion(Struct):
    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = octets()
    salted_password: bytes = octets()


class AlterUserScramCredentialsRequest(Request, key=51, versions="0", flexible="0+"):
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(Struct):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=True)


class AlterUserScramCredentialsResponse(Response, to=AlterUserScramCredentialsRequest):
    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
