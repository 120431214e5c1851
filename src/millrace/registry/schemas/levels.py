"""Compatibility levels: which earlier versions a new schema is compared with, and in which direction."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from millrace.registry.schemas.schema import ParsedSchema, Problem


class Level(StrEnum):
    """The compatibility levels of the registry."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        """Whether all earlier versions count, or only the latest."""
        return self.value.endswith("_TRANSITIVE")

    @property
    def reads_older(self) -> bool:
        """Whether the new schema has to read data of older ones."""
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def is_read_by_older(self) -> bool:
        """Whether older schemas have to read data of the new one."""
        return self.value.startswith(("FORWARD", "FULL"))


class Earlier(NamedTuple):
    """An earlier version of a subject."""

    version: int
    schema: ParsedSchema


def incompatibilities(new: ParsedSchema, earlier: Sequence[Earlier], level: Level) -> list[str]:
    """The reasons why a schema may not follow these versions, oldest first; an empty list if it may.

    Versions are compared from the latest backwards. The first one that is not compatible ends the search, and
    its reasons are followed by lines that name it, as Confluent's registry does.
    """
    if level is Level.NONE:
        return []
    compared = earlier if level.is_transitive else earlier[-1:]
    for version, old in reversed(compared):
        reasons = _reasons(new, old, level)
        if reasons:
            return [
                *reasons,
                f"{{oldSchemaVersion: {version}}}",
                f"{{oldSchema: '{old.canonical}'}}",
                f"{{compatibility: '{level.value}'}}",
            ]
    return []


def _reasons(new: ParsedSchema, old: ParsedSchema, level: Level) -> list[str]:
    if new.type != old.type:
        return [
            str(
                Problem(
                    "SCHEMA_TYPE_CHANGED",
                    "",
                    f"The new schema is of type {new.type}, the old schema of type {old.type}",
                )
            )
        ]
    problems: list[Problem] = []
    if level.reads_older:
        problems += new.problems_reading(old)
    if level.is_read_by_older:
        problems += old.problems_reading(new)
    return list(map(str, dict.fromkeys(problems)))
