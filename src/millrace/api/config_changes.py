"""Changes to the configs of several resources in one request: each succeeds or fails alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from millrace.errors import Error, KafkaError

CHANGES_AT_ONCE = 1000


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
    """Change the resources; one that is named twice is left as it is.

    The changes begin one after the other, with turns for other clients in between. They do not wait for each
    other, so that a store can write many of them together.
    """
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    outcomes: dict[tuple[int, str], A] = {}
    room = asyncio.Semaphore(CHANGES_AT_ONCE)

    async def attempt(resource: R, outcome: A) -> None:
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(Error.INVALID_REQUEST, "Each resource must appear at most once.")
            await change(resource)
        except KafkaError as error:
            outcome.error_code = error.error
            outcome.error_message = error.message
        finally:
            room.release()

    async with asyncio.TaskGroup() as changes:
        for resource in resources:
            await room.acquire()
            outcome = outcomes[resource.resource_type, resource.resource_name] = outcome_of(resource)
            changes.create_task(attempt(resource, outcome))
            await asyncio.sleep(0)
    return list(outcomes.values())
