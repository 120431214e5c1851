"""Quotas of users and clients: bytes per second and shares of the broker's time, as in Kafka.

A client whose rate is above its quota gets a throttle time in its response, and its next request waits until
that time has passed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from millrace.clock import Clock
from millrace.errors import Error, KafkaError
from millrace.security.entities import DEFAULT, EntityConfigs, Parts, entity_path

PRODUCE = "producer_byte_rate"
FETCH = "consumer_byte_rate"
REQUEST = "request_percentage"
CLIENT_QUOTAS = (PRODUCE, FETCH, REQUEST, "controller_mutation_rate")
IP_QUOTAS = ("connection_creation_rate",)

Key: TypeAlias = "tuple[str, str]"
"""The path of the entity that shares a quota, and the name of the quota."""

# Clients choose their ids: no more of them than this are remembered.
MAX_REMEMBERED = 50_000


def check_quota(parts: Parts, name: str, value: float) -> None:
    """Raises KafkaError if an entity cannot have a quota of this name and value."""
    if not parts or not parts.keys() <= {"user", "client-id", "ip"} or ("ip" in parts and len(parts) > 1):
        raise KafkaError(Error.INVALID_REQUEST, "Invalid client quota entity")
    if any(part == "" for part in parts.values()):
        raise KafkaError(Error.INVALID_REQUEST, "Invalid empty client quota entity name")
    known = IP_QUOTAS if "ip" in parts else CLIENT_QUOTAS
    if name not in known:
        raise KafkaError(Error.INVALID_REQUEST, f"Invalid configuration key {name}")
    if not math.isfinite(value) or value <= 0:
        raise KafkaError(Error.INVALID_REQUEST, f"Quota {name} must be greater than 0")


def quota_values(settings: Mapping[str, str]) -> dict[str, float]:
    """The quotas among the configs of an entity."""
    return {name: float(text) for name, text in settings.items() if name in (*CLIENT_QUOTAS, *IP_QUOTAS)}


class Rate:
    """The amount of the last seconds, in samples of one second, and the rate over them."""

    __slots__ = ("_samples", "_window")

    def __init__(self, window: int) -> None:
        self._window = window
        self._samples: list[tuple[int, float]] = []

    def add(self, now: float, amount: float) -> None:
        second = int(now)
        if self._samples and self._samples[-1][0] == second:
            amount += self._samples.pop()[1]
        self._samples.append((second, amount))
        while self._samples[0][0] <= second - self._window:
            self._samples.pop(0)

    def is_past(self, now: float) -> bool:
        """Whether nothing was added within the window."""
        return self._samples[-1][0] <= int(now) - self._window

    def excess_seconds(self, now: float, limit: float) -> float:
        """The time without any further amount after which the rate is down to the limit."""
        # The newest sample is not full yet; like Kafka, a short history counts as a full one.
        seconds = max(now - self._samples[0][0], self._window - 1)
        total = sum(amount for _, amount in self._samples)
        return max(total / limit - seconds, 0.0)


class Quotas:
    """Rates of all clients that have quotas. Owned by the broker loop; not thread-safe."""

    def __init__(self, configs: Callable[[], EntityConfigs], clock: Clock, window: int) -> None:
        self._configs = configs
        self._clock = clock
        self._window = window
        self._seen: EntityConfigs = {}
        self._limits: dict[tuple[str, str], dict[str, tuple[str, float]]] = {}
        self._rates: dict[Key, Rate] = {}
        self.active = False
        """Whether any quota exists. Requests look at nothing else while there is none."""

    def refresh(self) -> None:
        """Act on changed quotas."""
        configs = self._configs()
        if configs is self._seen:
            return
        self._seen = configs
        self._limits.clear()
        self._rates.clear()
        self.active = any(name in CLIENT_QUOTAS for settings in configs.values() for name in settings)

    def throttle_ms(self, user: str, client_id: str, amounts: Mapping[str, float]) -> int:
        """Count amounts of a client by quota; returns how long it has to wait."""
        limits = self._limits.get((user, client_id))
        now, longest = self._clock.monotonic(), 0.0
        if limits is None:
            self._forget_some(now)
            limits = self._limits[user, client_id] = self._resolve(user, client_id)
        for name, amount in amounts.items():
            if name not in limits or not amount:
                continue
            shared_by, limit = limits[name]
            rate = self._rates.get((shared_by, name))
            if rate is None:
                rate = self._rates[shared_by, name] = Rate(self._window)
            rate.add(now, amount)
            longest = max(longest, rate.excess_seconds(now, limit))
        return math.ceil(longest * 1000)

    def _forget_some(self, now: float) -> None:
        """Keep memory bounded, whatever ids clients send."""
        if len(self._limits) >= MAX_REMEMBERED:
            self._limits.clear()
            self._rates = {key: rate for key, rate in self._rates.items() if not rate.is_past(now)}

    def _resolve(self, user: str, client_id: str) -> dict[str, tuple[str, float]]:
        """For each quota of a client, the path of the clients that share it, and the limit."""
        found: dict[str, tuple[str, float]] = {}
        for configured, shared_by in _candidates(user, client_id):
            for name, value in quota_values(self._seen.get(configured, {})).items():
                found.setdefault(name, (shared_by, value))
        return found


def _candidates(user: str, client_id: str) -> Iterator[tuple[str, str]]:
    """The entities whose quota a client may have, the most specific first.

    The second path of each pair names the clients that share the quota: with a default, each name on its own.
    """
    own_user, own_client = entity_path({"user": user}), entity_path({"client-id": client_id})
    any_user, any_client = f"users/{DEFAULT}", f"clients/{DEFAULT}"
    both = f"{own_user}/{own_client}"
    yield f"{own_user}/{own_client}", both
    yield f"{own_user}/{any_client}", both
    yield own_user, own_user
    yield f"{any_user}/{own_client}", both
    yield f"{any_user}/{any_client}", both
    yield any_user, own_user
    yield own_client, own_client
    yield any_client, own_client
