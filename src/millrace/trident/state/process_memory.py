"""A store in the memory of this process, for tests and experiments."""

from __future__ import annotations

from collections.abc import Sequence

_MEMORIES: dict[str, dict[str, str]] = {}


class Memory:
    """Keeps values in this process, under a name: states of the same name share them."""

    def __init__(self, name: str) -> None:
        self._values = _MEMORIES.setdefault(name, {})

    def multi_get(self, keys: Sequence[str]) -> list[str | None]:
        return [self._values.get(key) for key in keys]

    def multi_put(self, keys: Sequence[str], values: Sequence[str]) -> None:
        self._values.update(zip(keys, values, strict=True))

    def close(self) -> None:
        """The values stay until the process ends."""


def forget(name: str) -> None:
    """Drop the values of a name."""
    _MEMORIES.pop(name, None)
