"""A store in a hash of Redis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millrace.trident.errors import StateError, StoreUnavailable

CONNECT_SECONDS = 10.0
KEYS_PER_QUERY = 10_000


class RedisHash:
    """Keeps values in a Redis hash. Redis keeps what its settings for persistence promise."""

    def __init__(self, url: str, name: str) -> None:
        try:
            import redis
        except ImportError as error:
            raise StateError(
                "states in Redis need its client, which is not installed: pip install 'millrace[states]'"
            ) from error
        self._failures: type[Exception] = redis.RedisError
        self._away = (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError)
        self._name = name
        self._label = f"{name} in {url.rpartition('@')[2]}"
        try:
            self._client: Any = redis.Redis.from_url(
                url, decode_responses=True, socket_connect_timeout=CONNECT_SECONDS
            )
            self._client.ping()
        except ValueError as error:
            raise StateError(f"{url!r} is not the address of Redis; write redis://host:6379/0") from error
        except redis.RedisError as error:
            raise self._explained(error) from error

    def multi_get(self, keys: Sequence[str]) -> list[str | None]:
        found: list[str | None] = []
        try:
            for start in range(0, len(keys), KEYS_PER_QUERY):
                found += self._client.hmget(self._name, list(keys[start : start + KEYS_PER_QUERY]))
        except self._failures as error:
            raise self._explained(error) from error
        return found

    def multi_put(self, keys: Sequence[str], values: Sequence[str]) -> None:
        try:
            for start in range(0, len(keys), KEYS_PER_QUERY):
                end = start + KEYS_PER_QUERY
                chunk = dict(zip(keys[start:end], values[start:end], strict=True))
                self._client.hset(self._name, mapping=chunk)
        except self._failures as error:
            raise self._explained(error) from error

    def close(self) -> None:
        self._client.close()

    def _explained(self, error: Exception) -> StateError:
        kind = StoreUnavailable if isinstance(error, self._away) else StateError
        return kind(
            f"the state {self._label} cannot be used: {error};"
            " check that Redis runs, and that this user may read and write the hash"
        )
