"""Changes to the configs of several resources in one request: each succeeds or fails alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from millrace.errors import Error, KafkaError
from millrace.steps import Turn


class Resource(Protocol):
    """A topic, broker, logger or group as a request names it."""

    resource_type: int
    resource_name: str


class Outcome(Protocol):
    """The result for one resource in a response."""

    error_code: int
    error_message: str | None


R = TypeVar("R", bound=Resource)
A = TypeVar("A", bound=Outcome)


async def change_each(
    resources: Sequence[R], change: Callable[[R], Awaitable[None]], outcome_of: Callable[[R], A]
) -> list[A]:
    """Change the resources in turn; one that is named twice is left as it is."""
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    outcomes: dict[tuple[int, str], A] = {}
    turn = Turn()
    for resource in resources:
        key = (resource.resource_type, resource.resource_name)
        outcomes[key] = outcome = outcome_of(resource)
        try:
            if times[key] > 1:
                raise KafkaError(Error.INVALID_REQUEST, "Each resource must appear at most once.")
            await change(resource)
        except KafkaError as error:
            outcome.error_code = error.error
            outcome.error_message = error.message
        await turn.end_step()
    return list(outcomes.values())
