"""Descriptions of several groups in one response."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from millrace.api.context import Context
from millrace.security.authorizer import Resource
from millrace.security.operations import ResourceType
from millrace.steps import Steps, each


class Described(Protocol):
    """A group as a response describes it."""

    error_code: int
    authorized_operations: int


D = TypeVar("D", bound=Described)


def describe_each(
    ctx: Context, group_ids: Iterable[str], describe: Callable[[str], D], *, with_operations: bool
) -> Steps[list[D]]:
    """Describe each group once, even if it is named twice: its description may be long."""

    def describe_one(group_id: str) -> D:
        described = describe(group_id)
        if with_operations and not described.error_code:
            group = Resource(ResourceType.GROUP, group_id)
            described.authorized_operations = ctx.authorized_operations(group)
        return described

    return each(dict.fromkeys(group_ids), describe_one)
