"""Users and clients of a cluster: their SCRAM credentials and quotas."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from millrace.client import Client, Connection, Outcomes
from millrace.crypto.scram import MIN_ITERATIONS, SALT_BYTES, ScramMechanism
from millrace.errors import Error, check
from millrace.wire.messages import alter_client_quotas as alter_api
from millrace.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from millrace.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntryData,
)
from millrace.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)


class Password(NamedTuple):
    """A new password of a user, which is salted here and never sent."""

    mechanism: ScramMechanism
    password: str
    iterations: int = MIN_ITERATIONS


async def set_passwords(
    client: Client, user: str, passwords: Sequence[Password], deleted: Sequence[ScramMechanism] = ()
) -> None:
    """Set and delete credentials of a user. Raises KafkaError."""
    upsertions = []
    for mechanism, password, iterations in passwords:
        salt = os.urandom(SALT_BYTES)
        salted = mechanism.salted_password(password, salt, iterations)
        upsertions.append(ScramCredentialUpsertion(user, mechanism, iterations, salt, salted))
    request = AlterUserScramCredentialsRequest(
        [ScramCredentialDeletion(user, mechanism) for mechanism in deleted], upsertions
    )

    async def call(
        connection: Connection, _: list[None]
    ) -> Outcomes[None, AlterUserScramCredentialsResponse]:
        return Outcomes({None: await connection.send(request, AlterUserScramCredentialsResponse)})

    for result in (await client.call_controller([None], call))[None].results:
        check(result.error_code, result.error_message)


async def describe_credentials(
    client: Client, user: str | None = None
) -> dict[str, dict[ScramMechanism, int]]:
    """The iterations of each mechanism by user: of all, or of one."""
    request = DescribeUserScramCredentialsRequest(None if user is None else [UserName(user)])
    response = await client.send(request, DescribeUserScramCredentialsResponse)
    check(response.error_code, response.error_message)
    found = {}
    for result in response.results:
        if result.error_code == Error.RESOURCE_NOT_FOUND:
            continue
        check(result.error_code, result.error_message)
        found[result.user] = {
            ScramMechanism(info.mechanism): info.iterations for info in result.credential_infos
        }
    return found


async def set_quotas(
    client: Client,
    entity: Mapping[str, str | None],
    quotas: Mapping[str, float],
    deleted: Sequence[str] = (),
) -> None:
    """Set and delete quotas of an entity: {"user": "ada"}; None is the default. Raises KafkaError."""
    changes = [alter_api.OpData(name, value) for name, value in quotas.items()]
    changes += [alter_api.OpData(name, remove=True) for name in deleted]
    parts = [alter_api.EntityData(kind, name) for kind, name in entity.items()]
    request = alter_api.AlterClientQuotasRequest([alter_api.EntryData(parts, changes)])

    async def call(
        connection: Connection, _: list[None]
    ) -> Outcomes[None, alter_api.AlterClientQuotasResponse]:
        return Outcomes({None: await connection.send(request, alter_api.AlterClientQuotasResponse)})

    for result in (await client.call_controller([None], call))[None].entries:
        check(result.error_code, result.error_message)


async def describe_quotas(client: Client, components: Sequence[ComponentData]) -> list[EntryData]:
    """The quotas of the entities that all components match."""
    request = DescribeClientQuotasRequest(list(components), strict=True)
    response = await client.send(request, DescribeClientQuotasResponse)
    check(response.error_code, response.error_message)
    return response.entries or []
