"""ApiVersions v0-4. v3: flexible, the client's software, features. v4: features whose lowest level is 0."""

from __future__ import annotations

import re

from millrace.api.context import Context
from millrace.api.features import EPOCH, FEATURES
from millrace.api.fetch_pace import pacer_for
from millrace.errors import Error, KafkaError
from millrace.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
LEVEL_ZERO_FROM = 4


def handle(ctx: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if ctx.api_version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        raise KafkaError(Error.INVALID_REQUEST)
    if ctx.services.config.millrace_fetch_pacing_enable and ctx.session.pacer is None:
        ctx.session.pacer = pacer_for(request.client_software_name)
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=lowest, max_version=highest)
            for key, lowest, highest in ctx.services.api_versions
        ],
        supported_features=[
            SupportedFeatureKey(name=feature.name, min_version=feature.lowest, max_version=feature.highest)
            for feature in FEATURES
            # Clients of v3 fail to read a lowest level of 0.
            if feature.lowest > 0 or ctx.api_version >= LEVEL_ZERO_FROM
        ],
        finalized_features_epoch=EPOCH,
        finalized_features=[
            FinalizedFeatureKey(
                name=feature.name, max_version_level=feature.finalized, min_version_level=feature.finalized
            )
            for feature in FEATURES
        ],
    )
