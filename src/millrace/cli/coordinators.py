"""Finds the brokers that coordinate groups and transactional ids."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import TypeVar

from millrace.cli.client import Client, Connection
from millrace.cli.errors import check
from millrace.errors import Error, KafkaError
from millrace.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

T = TypeVar("T")

RETRY_SECONDS = 0.1
# From this version on, one request asks for several keys.
BATCHED_VERSION = 4

# A coordinator that is loading, or has just moved to another broker, will answer soon.
_PASSING = (
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
    Error.CONCURRENT_TRANSACTIONS,
)


class KeyType(IntEnum):
    """What a coordinator is looked for by."""

    GROUP = 0
    TRANSACTION = 1


def find_coordinators(client: Client, keys: Iterable[str], key_type: KeyType) -> dict[str, Coordinator]:
    """The coordinator of each group or transactional id."""
    wanted = list(dict.fromkeys(keys))
    version = client.bootstrap.best_version(FindCoordinatorRequest)
    if version is None or version >= BATCHED_VERSION:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=wanted)
        found = client.send(request, FindCoordinatorResponse).coordinators if wanted else []
    else:
        found = [_find_one(client.bootstrap, key, key_type) for key in wanted]
    for coordinator in found:
        check(coordinator.error_code, coordinator.error_message)
    return {coordinator.key: coordinator for coordinator in found}


def _find_one(connection: Connection, key: str, key_type: KeyType) -> Coordinator:
    response = connection.send(FindCoordinatorRequest(key=key, key_type=key_type), FindCoordinatorResponse)
    return Coordinator(
        key=key,
        node_id=response.node_id,
        host=response.host,
        port=response.port,
        error_code=response.error_code,
        error_message=response.error_message,
    )


def by_broker(coordinators: Mapping[str, Coordinator]) -> dict[int, list[str]]:
    """The keys that each broker coordinates."""
    keys: dict[int, list[str]] = defaultdict(list)
    for key, coordinator in coordinators.items():
        keys[coordinator.node_id].append(key)
    return keys


def until_coordinated(client: Client, ask: Callable[[], T]) -> T:
    """What `ask` returns, once the coordinators it needs are ready; gives up after the client's timeout."""
    deadline = time.monotonic() + client.timeout_seconds
    while True:
        try:
            return ask()
        except KafkaError as error:
            if error.error not in _PASSING or time.monotonic() >= deadline:
                raise
        time.sleep(RETRY_SECONDS)
