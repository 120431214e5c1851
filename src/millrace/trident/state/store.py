"""The interface of a store: implement it to keep Trident's state in a system of your own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Store(Protocol):
    """Keeps texts by key. Keys and values are JSON.

    A store needs no transactions over several keys. It must write each value completely or not at all, and
    after `multi_put` has returned, the values must survive a crash.
    """

    def multi_get(self, keys: Sequence[str]) -> Sequence[str | None]:
        """The value of each key, in order; None for a key that has none."""

    def multi_put(self, keys: Sequence[str], values: Sequence[str]) -> None:
        """Write the value of each key."""

    def close(self) -> None:
        """Close connections."""
