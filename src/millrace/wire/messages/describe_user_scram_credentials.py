"""DescribeUserScramCredentials v0 (KIP-554)."""

from millrace.wire.schema import Request, Response, Struct, array, int8, int16, int32, string


class UserName(Struct):
    name: str = string()


class DescribeUserScramCredentialsRequest(Request, key=50, versions="0", flexible="0+"):
    users: list[UserName] | None = array(UserName, nullable=True)


class CredentialInfo(Struct):
    mechanism: int = int8()
    iterations: int = int32()


class DescribeUserScramCredentialsResult(Struct):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


class DescribeUserScramCredentialsResponse(Response, to=DescribeUserScramCredentialsRequest):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
