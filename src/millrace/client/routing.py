"""Sends requests to the brokers that are responsible for their keys, and follows those when they move.

The leader is responsible for a partition, the coordinator for a group or a transactional id. Both may change
at any time: a broker then returns an error, and the request is sent again once the new one is known. Errors
that do not pass by waiting are final at once.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from millrace.client.connection import Connection
from millrace.client.errors import ConnectionLost
from millrace.client.locations import PASSING, Locations
from millrace.client.metadata import NO_NODE
from millrace.client.outcomes import Outcomes
from millrace.clock import Clock
from millrace.errors import Error, KafkaError
from millrace.timers import Timers, pause

if TYPE_CHECKING:
    from millrace.client.client import Client

K = TypeVar("K")
T = TypeVar("T")

Call = Callable[[Connection, list[K]], Awaitable[Outcomes[K, T]]]
"""Asks one broker about the keys it is responsible for. A KafkaError that it raises holds for all of them."""

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 1.0


async def route(
    client: Client,
    keys: Iterable[K],
    locations: Locations[K],
    call: Call[K, T],
    *,
    is_repeatable: bool = True,
) -> Outcomes[K, T]:
    """Call the broker of each key, and call again while errors pass, until the client's timeout.

    `is_repeatable` says whether a request may be sent again although the broker may have handled it.
    """
    outcomes: Outcomes[K, T] = Outcomes()
    wanted = list(dict.fromkeys(keys))
    backoff = Backoff(client.timeout_seconds, client.clock, client.timers)
    pending = wanted
    while pending:
        passing = await _call_once(client, pending, locations, call, outcomes, is_repeatable)
        if passing and not await backoff.pause():
            outcomes.failed |= passing
            break
        pending = list(passing)
        locations.forget(pending)
    return outcomes.in_order_of(wanted)


async def _call_once(
    client: Client,
    keys: list[K],
    locations: Locations[K],
    call: Call[K, T],
    outcomes: Outcomes[K, T],
    is_repeatable: bool,
) -> dict[K, KafkaError]:
    """Add what is final to the outcomes, and return the errors that may pass."""
    try:
        located = await locations.find(keys)
    except KafkaError as failure:
        located = Outcomes(failed=dict.fromkeys(keys, failure))
    passing: dict[K, KafkaError] = {}
    for key, error in located.failed.items():
        (passing if error.error in PASSING else outcomes.failed)[key] = error
    by_node: dict[int, list[K]] = defaultdict(list)
    for key, node_id in located.succeeded.items():
        by_node[node_id].append(key)
    calls = (_call_node(client, node_id, group, call) for node_id, group in by_node.items())
    for part in await asyncio.gather(*calls):
        outcomes.succeeded |= part.succeeded
        for key, error in part.failed.items():
            passes = error.error in locations.passing and (
                is_repeatable or not isinstance(error, ConnectionLost)
            )
            (passing if passes else outcomes.failed)[key] = error
    return passing


async def _call_node(client: Client, node_id: int, keys: list[K], call: Call[K, T]) -> Outcomes[K, T]:
    try:
        connection = await (client.any_broker() if node_id == NO_NODE else client.broker(node_id))
        outcomes = await call(connection, keys)
    except KafkaError as error:
        return Outcomes(failed=dict.fromkeys(keys, error))
    for key in keys:
        if key not in outcomes.succeeded and key not in outcomes.failed:
            message = f"the response of the broker at {connection.address} lacks {key}"
            outcomes.failed[key] = KafkaError(Error.UNKNOWN_SERVER_ERROR, message)
    return outcomes


class Backoff:
    """Pauses between attempts, each longer than the last, until the time is up."""

    def __init__(self, timeout_seconds: float, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self._deadline = clock.monotonic() + timeout_seconds
        self._pause_seconds = FIRST_PAUSE_SECONDS

    async def pause(self) -> bool:
        """Wait for the next attempt; False if there is no time for one."""
        if self._clock.monotonic() + self._pause_seconds > self._deadline:
            return False
        await pause(self._timers, self._pause_seconds * 1000)
        self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)
        return True
