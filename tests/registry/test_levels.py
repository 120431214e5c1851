"""Compatibility levels: which versions count, and in which direction."""

import json

import pytest

from millrace.registry.schemas import parse
from millrace.registry.schemas.levels import Earlier, Level, incompatibilities
from millrace.registry.schemas.schema import ParsedSchema


def record(*fields: dict[str, object]) -> ParsedSchema:
    return parse("AVRO", json.dumps({"type": "record", "name": "R", "fields": list(fields)}))


PLAIN_A = {"name": "a", "type": "string"}
PLAIN_B = {"name": "b", "type": "string"}
DEFAULT_B = {"name": "b", "type": "string", "default": ""}

A, AB, AB_DEFAULT = record(PLAIN_A), record(PLAIN_A, PLAIN_B), record(PLAIN_A, DEFAULT_B)

CASES = [
    # History, new schema, and the levels that accept it.
    ([A], AB, {"NONE", "FORWARD", "FORWARD_TRANSITIVE"}),
    ([A], AB_DEFAULT, set(Level)),
    ([AB], A, {"NONE", "BACKWARD", "BACKWARD_TRANSITIVE"}),
    ([AB_DEFAULT], A, set(Level)),
    # The latest version accepts what the one before it does not.
    ([A, AB_DEFAULT], AB, set(Level) - {"BACKWARD_TRANSITIVE", "FULL_TRANSITIVE"}),
    ([AB, AB_DEFAULT], A, set(Level) - {"FORWARD_TRANSITIVE", "FULL_TRANSITIVE"}),
    ([], A, set(Level)),
    ([A], A, set(Level)),
]


@pytest.mark.parametrize("level", list(Level))
@pytest.mark.parametrize(("history", "new", "accepting"), CASES)
def test_level_decides_direction_and_reach(
    level: Level, history: list[ParsedSchema], new: ParsedSchema, accepting: set[str]
) -> None:
    earlier = [Earlier(number, schema) for number, schema in enumerate(history, 1)]
    assert (incompatibilities(new, earlier, level) == []) == (level in accepting)


def test_reasons_name_the_version_and_the_level() -> None:
    reasons = incompatibilities(AB, [Earlier(7, A)], Level.BACKWARD)
    assert reasons[1:] == [
        "{oldSchemaVersion: 7}",
        f"{{oldSchema: '{A.canonical}'}}",
        "{compatibility: 'BACKWARD'}",
    ]


def test_types_do_not_mix_unless_nothing_is_checked() -> None:
    other = parse("JSON", "{}")
    assert "SCHEMA_TYPE_CHANGED" in incompatibilities(other, [Earlier(1, A)], Level.BACKWARD)[0]
    assert incompatibilities(other, [Earlier(1, A)], Level.NONE) == []
