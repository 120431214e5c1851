"""Replies to parked requests, held back until the state that they speak of is final and committed."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from millrace.deferred import Deferred, Eventual

R = TypeVar("R")


class Settle(Protocol):
    """Holds a response back until the state of its group is committed."""

    def __call__(self, group_id: str, response: R, /) -> Eventual[R]: ...


class Replies:
    """`with replies:` sends at its end what was added within: a reply lets in its client's next request."""

    __slots__ = ("_due", "_settle")

    def __init__(self, settle: Settle) -> None:
        self._settle = settle
        self._due: list[tuple[str, Deferred[Any], Any]] = []

    def add(self, group_id: str, parked: Deferred[R], response: R) -> None:
        self._due.append((group_id, parked, response))

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        due, self._due = self._due, []
        for group_id, parked, response in due:
            settled = self._settle(group_id, response)
            if isinstance(settled, Deferred):
                settled.then(parked.resolve)
            else:
                parked.resolve(settled)
