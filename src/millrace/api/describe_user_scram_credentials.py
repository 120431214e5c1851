"""DescribeUserScramCredentials v0 (KIP-554): mechanisms and iterations, never keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from millrace.api.context import Context
from millrace.crypto.scram import ScramCredential, ScramMechanism
from millrace.errors import Error
from millrace.security.entities import entity_parts, user_path
from millrace.steps import Steps
from millrace.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def handle(
    ctx: Context, request: DescribeUserScramCredentialsRequest
) -> Steps[DescribeUserScramCredentialsResponse]:
    response = DescribeUserScramCredentialsResponse()
    configs = ctx.image.entity_configs
    if request.users:
        for name, count in Counter(user.name for user in request.users).items():
            infos = _infos(configs.get(user_path(name), {}))
            response.results.append(_result(name, infos, is_repeated=count > 1))
            yield
    else:
        for path, settings in configs.items():
            parts = entity_parts(path)
            infos = _infos(settings)
            if infos and parts.keys() == {"user"}:
                response.results.append(
                    DescribeUserScramCredentialsResult(user=parts["user"] or "", credential_infos=infos)
                )
            yield
    return response


def _infos(settings: Mapping[str, str]) -> list[CredentialInfo]:
    return [
        CredentialInfo(mechanism=mechanism, iterations=ScramCredential.parse(text).iterations)
        for mechanism in ScramMechanism
        if (text := settings.get(mechanism.text)) is not None
    ]


def _result(
    name: str, infos: list[CredentialInfo], *, is_repeated: bool
) -> DescribeUserScramCredentialsResult:
    if is_repeated:
        return DescribeUserScramCredentialsResult(
            name,
            Error.DUPLICATE_RESOURCE,
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}",
        )
    if not infos:
        return DescribeUserScramCredentialsResult(
            name,
            Error.RESOURCE_NOT_FOUND,
            f"Attempt to describe a user credential that does not exist: {name}",
        )
    return DescribeUserScramCredentialsResult(user=name, credential_infos=infos)
