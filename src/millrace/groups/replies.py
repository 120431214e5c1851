"""Replies to parked requests, held back until the state they speak of is final."""

from __future__ import annotations

from typing import Any, TypeVar

from millrace.deferred import Deferred

R = TypeVar("R")


class Replies:
    """`with replies:` sends at its end what was added within: a reply lets in its client's next request."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due: list[tuple[Deferred[Any], Any]] = []

    def add(self, parked: Deferred[R], response: R) -> None:
        self._due.append((parked, response))

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        due, self._due = self._due, []
        for parked, response in due:
            parked.resolve(response)
