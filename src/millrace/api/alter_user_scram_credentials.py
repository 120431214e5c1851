"""AlterUserScramCredentials v0 (KIP-554): the client has salted the passwords; they never arrive here."""

from __future__ import annotations

from typing import TypeAlias

from millrace.api.context import Context
from millrace.crypto.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential, ScramMechanism
from millrace.errors import Error, KafkaError
from millrace.security.entities import scram_credential, user_path
from millrace.steps import Turn
from millrace.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

# Each user's change is a write to disk.
MAX_USERS = 1000

Change: TypeAlias = "ScramCredentialDeletion | ScramCredentialUpsertion"


async def handle(
    ctx: Context, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    response = AlterUserScramCredentialsResponse()
    by_user: dict[str, list[Change]] = {}
    turn = Turn()
    asked: list[Change] = [*request.deletions, *request.upsertions]
    for change in asked:
        by_user.setdefault(change.name, []).append(change)
        await turn.end_step()
    for user, changes in by_user.items():
        result = AlterUserScramCredentialsResult(user=user)
        try:
            if len(by_user) > MAX_USERS:
                raise KafkaError(Error.INVALID_REQUEST, f"More than {MAX_USERS} users in one request")
            if len({change.mechanism for change in changes}) < len(changes):
                raise KafkaError(
                    Error.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            settings = dict(_setting(ctx, change) for change in changes)
            await ctx.services.metadata.alter_entity_configs(user_path(user), settings)
        except KafkaError as error:
            result.error_code, result.error_message = error.error, error.message
        response.results.append(result)
        await turn.end_step()
    return response


def _setting(ctx: Context, change: Change) -> tuple[str, str | None]:
    """The config that a change sets, or unsets."""
    if not change.name:
        raise KafkaError(Error.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    try:
        mechanism = ScramMechanism(change.mechanism)
    except ValueError:
        raise KafkaError(Error.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism") from None
    if isinstance(change, ScramCredentialDeletion):
        if scram_credential(ctx.image.entity_configs, change.name, mechanism) is None:
            raise KafkaError(
                Error.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
            )
        return mechanism.text, None
    if change.iterations < MIN_ITERATIONS:
        raise KafkaError(Error.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > MAX_ITERATIONS:
        raise KafkaError(Error.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not change.salt or not change.salted_password:
        raise KafkaError(Error.UNACCEPTABLE_CREDENTIAL, "A salt and a salted password are needed")
    credential = ScramCredential.of(
        mechanism, bytes(change.salted_password), bytes(change.salt), change.iterations
    )
    return mechanism.text, credential.text
