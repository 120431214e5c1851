"""ApiVersions v0-4. v3: flexible, the client's software, features. v4: features whose lowest version is 0."""

from __future__ import annotations

import re

from millrace.api.context import Context
from millrace.errors import Error, KafkaError
from millrace.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(ctx: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if ctx.api_version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        raise KafkaError(Error.INVALID_REQUEST)
    # No feature levels: those that exist concern transactions and the newer kinds of groups.
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=lowest, max_version=highest)
            for key, lowest, highest in ctx.api_versions
        ]
    )
