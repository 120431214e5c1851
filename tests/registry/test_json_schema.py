"""JSON Schema: parsing, references, and which schema accepts the documents of which, pair by pair."""

import json
from typing import Any

import pytest

from millrace.registry.schemas import InvalidSchema, parse

STRING, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}


def thing(properties: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties or {}} | more


def closed(properties: Any = None, **more: Any) -> dict[str, Any]:
    return thing(properties, additionalProperties=False, **more)


def array(items: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": "array"} | ({} if items is None else {"items": items}) | more


# The new schema, the old schema, and the kinds of problems.
PAIRS: list[tuple[Any, Any, list[str]]] = [
    (STRING, STRING, []),
    ({}, STRING, []),
    (True, STRING, []),
    (STRING, False, []),
    (STRING, {}, ["TYPE_CHANGED"]),
    (STRING, INTEGER, ["TYPE_CHANGED"]),
    (NUMBER, INTEGER, []),
    (INTEGER, NUMBER, ["TYPE_NARROWED"]),
    ({"type": "string", "title": "t"}, STRING, []),
    ({"type": "string", "maxLength": 5}, STRING, ["MAX_LENGTH_ADDED"]),
    ({"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 3}, []),
    ({"type": "string", "maxLength": 3}, {"type": "string", "maxLength": 5}, ["MAX_LENGTH_DECREASED"]),
    (STRING, {"type": "string", "maxLength": 5}, []),
    ({"type": "string", "minLength": 1}, STRING, ["MIN_LENGTH_ADDED"]),
    ({"type": "string", "minLength": 1}, {"type": "string", "minLength": 2}, []),
    ({"type": "string", "minLength": 2}, {"type": "string", "minLength": 1}, ["MIN_LENGTH_INCREASED"]),
    ({"type": "string", "pattern": "a"}, STRING, ["PATTERN_ADDED"]),
    ({"type": "string", "pattern": "a"}, {"type": "string", "pattern": "b"}, ["PATTERN_CHANGED"]),
    (STRING, {"type": "string", "pattern": "b"}, []),
    ({"type": "number", "maximum": 5}, NUMBER, ["MAXIMUM_ADDED"]),
    ({"type": "number", "maximum": 5}, {"type": "number", "maximum": 6}, ["MAXIMUM_DECREASED"]),
    ({"type": "number", "minimum": 5}, {"type": "number", "minimum": 4}, ["MINIMUM_INCREASED"]),
    ({"type": "number", "minimum": 4}, {"type": "number", "minimum": 5}, []),
    ({"type": "number", "exclusiveMaximum": 5}, NUMBER, ["EXCLUSIVE_MAXIMUM_ADDED"]),
    (
        {"type": "number", "exclusiveMinimum": 5},
        {"type": "number", "exclusiveMinimum": 4},
        ["EXCLUSIVE_MINIMUM_INCREASED"],
    ),
    ({"type": "number", "multipleOf": 2}, {"type": "number", "multipleOf": 4}, []),
    ({"type": "number", "multipleOf": 4}, {"type": "number", "multipleOf": 2}, ["MULTIPLE_OF_EXPANDED"]),
    ({"type": "number", "multipleOf": 3}, {"type": "number", "multipleOf": 2}, ["MULTIPLE_OF_CHANGED"]),
    ({"type": "number", "multipleOf": 0.5}, {"type": "number", "multipleOf": 1.5}, []),
    ({"type": "number", "multipleOf": 2}, NUMBER, ["MULTIPLE_OF_ADDED"]),
    ({"enum": [1, 2]}, {"enum": [1]}, []),
    ({"enum": [1]}, {"enum": [1, 2]}, ["ENUM_ARRAY_NARROWED"]),
    ({"enum": [3]}, {"enum": [1, 2]}, ["ENUM_ARRAY_CHANGED"]),
    ({"enum": [1]}, {"enum": [True]}, ["ENUM_ARRAY_CHANGED"]),
    ({"enum": ["a", "b"]}, {"const": "a"}, []),
    ({"type": "string", "enum": ["a"]}, STRING, ["TYPE_CHANGED"]),
    (STRING, {"type": "string", "enum": ["a"]}, []),
    ({"type": ["string", "null"]}, STRING, []),
    (STRING, {"type": ["string", "null"]}, ["TYPE_CHANGED"]),
    ({"type": ["string", "null", "integer"]}, {"type": ["null", "string"]}, []),
    ({"type": ["string", "null"]}, {"type": ["null", "string", "integer"]}, ["SUM_TYPE_NARROWED"]),
    ({"oneOf": [STRING, INTEGER]}, STRING, []),
    ({"oneOf": [STRING, INTEGER]}, {"oneOf": [INTEGER]}, []),
    ({"oneOf": [STRING]}, {"oneOf": [STRING, INTEGER]}, ["SUM_TYPE_NARROWED"]),
    ({"anyOf": [STRING, INTEGER]}, {"oneOf": [STRING, INTEGER]}, []),
    ({"oneOf": [STRING, INTEGER]}, {"anyOf": [STRING, INTEGER]}, ["COMBINED_TYPE_CHANGED"]),
    ({"allOf": [thing()]}, {"allOf": [thing(), thing(minProperties=1)]}, []),
    ({"allOf": [thing(), thing(minProperties=1)]}, {"allOf": [thing()]}, ["PRODUCT_TYPE_EXTENDED"]),
    ({"not": STRING}, {"not": STRING}, []),
    ({"not": {"type": "string", "maxLength": 3}}, {"not": STRING}, []),
    ({"not": STRING}, {"not": {"type": "string", "maxLength": 3}}, ["NOT_TYPE_EXTENDED"]),
    (thing({"a": STRING}), thing({"a": STRING}), []),
    (thing({"a": INTEGER}), thing({"a": STRING}), ["TYPE_CHANGED"]),
    (thing({"a": STRING}), thing(), ["PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"]),
    (thing({"a": {}}), thing(), []),
    (thing(), thing({"a": STRING}), []),
    (closed({"a": STRING}), closed(), []),
    (closed(), closed({"a": STRING}), ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"]),
    (closed({"a": STRING}, required=["a"]), closed(), ["REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"]),
    (closed({"a": {"type": "string", "default": ""}}, required=["a"]), closed(), []),
    (thing({"a": STRING}, required=["a"]), thing({"a": STRING}), ["REQUIRED_ATTRIBUTE_ADDED"]),
    (thing({"a": STRING}), thing({"a": STRING}, required=["a"]), []),
    (closed(), thing(), ["ADDITIONAL_PROPERTIES_REMOVED"]),
    (thing(), closed(), []),
    (thing(additionalProperties=STRING), thing(), ["ADDITIONAL_PROPERTIES_NARROWED"]),
    (thing(additionalProperties=NUMBER), thing(additionalProperties=INTEGER), []),
    (thing(additionalProperties=STRING), thing(additionalProperties=INTEGER), ["TYPE_CHANGED"]),
    (
        thing({"a": INTEGER}, additionalProperties=STRING),
        thing(additionalProperties=STRING),
        ["PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"],
    ),
    (thing({"a": STRING}, additionalProperties=STRING), thing(additionalProperties=STRING), []),
    (
        thing(patternProperties={"^a": STRING}, additionalProperties=False),
        closed({"ab": INTEGER}),
        ["PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"],
    ),
    (thing(patternProperties={"^a": STRING}, additionalProperties=False), closed({"ab": STRING}), []),
    (thing(maxProperties=1), thing(), ["MAX_PROPERTIES_ADDED"]),
    (thing(minProperties=2), thing(minProperties=1), ["MIN_PROPERTIES_INCREASED"]),
    (thing(dependencies={"a": ["b"]}), thing(), ["DEPENDENCY_ARRAY_ADDED"]),
    (thing(dependencies={"a": ["b", "c"]}), thing(dependencies={"a": ["b"]}), ["DEPENDENCY_ARRAY_EXTENDED"]),
    (thing(dependencies={"a": ["b"]}), thing(dependencies={"a": ["b", "c"]}), []),
    (thing(dependencies={"a": thing()}), thing(), ["DEPENDENCY_SCHEMA_ADDED"]),
    (array(NUMBER), array(INTEGER), []),
    (array(INTEGER), array(NUMBER), ["TYPE_NARROWED"]),
    (array(INTEGER), array(), ["SCHEMA_ADDED"]),
    (array(), array(INTEGER), []),
    (array(maxItems=1), array(), ["MAX_ITEMS_ADDED"]),
    (array(minItems=2), array(minItems=1), ["MIN_ITEMS_INCREASED"]),
    (array(uniqueItems=True), array(), ["UNIQUE_ITEMS_ADDED"]),
    (array([STRING, INTEGER]), array([STRING]), ["ITEM_ADDED_TO_OPEN_CONTENT_MODEL"]),
    (array([STRING]), array([STRING, INTEGER]), []),
    (
        array([STRING], additionalItems=False),
        array([STRING, INTEGER], additionalItems=False),
        ["ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL"],
    ),
    (array([STRING, INTEGER], additionalItems=False), array([STRING], additionalItems=False), []),
]


@pytest.mark.parametrize(("new", "old", "kinds"), PAIRS)
def test_new_schema_accepts_old_documents_or_says_why_not(new: Any, old: Any, kinds: list[str]) -> None:
    schemas = [parse("JSON", json.dumps(each)) for each in (new, old)]
    assert [problem.kind for problem in schemas[0].problems_reading(schemas[1])] == kinds


def test_every_schema_is_compatible_with_itself() -> None:
    for new, old, _ in PAIRS:
        for each in (new, old):
            schema = parse("JSON", json.dumps(each))
            assert schema.problems_reading(schema) == []


def test_reason_names_the_path() -> None:
    new = parse("JSON", json.dumps(thing({"a": thing({"b": STRING})})))
    old = parse("JSON", json.dumps(thing({"a": thing({"b": INTEGER})})))
    (problem,) = new.problems_reading(old)
    assert problem.path == "#/properties/a/properties/b"
    assert "TYPE_CHANGED" in str(problem)


def test_recursive_schemas_are_compared() -> None:
    def tree(value: Any) -> Any:
        return thing({"value": value, "children": array({"$ref": "#"})})

    new, old = (parse("JSON", json.dumps(tree(each))) for each in (STRING, INTEGER))
    assert {problem.kind for problem in new.problems_reading(old)} == {"TYPE_CHANGED"}
    assert new.problems_reading(new) == []


def test_definitions_and_references_are_followed() -> None:
    user = json.dumps(thing({"name": STRING}))
    local = {"definitions": {"user": thing({"name": STRING})}, "$ref": "#/definitions/user"}
    new = parse("JSON", json.dumps({"$ref": "user.json"}), {"user.json": user})
    old = parse("JSON", json.dumps(local))
    assert new.problems_reading(old) == []
    wrong = parse(
        "JSON", json.dumps({"$ref": "user.json"}), {"user.json": json.dumps(thing({"name": INTEGER}))}
    )
    assert [problem.kind for problem in wrong.problems_reading(old)] == ["TYPE_CHANGED"]


def test_canonical_form_drops_layout_and_normal_form_the_order() -> None:
    first = parse("JSON", '{ "type" : "string", "minLength": 1 }')
    second = parse("JSON", '{"minLength":1,"type":"string"}')
    assert first.canonical == '{"type":"string","minLength":1}'
    assert first.canonical != second.canonical
    assert first.normalized() == second.normalized()


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "5",
        '{"type":"strin"}',
        '{"minLength":"x"}',
        '{"$ref":"#/definitions/missing"}',
        '{"$ref":"other.json"}',
        '{"required":"a"}',
        '{"properties":5}',
        '{"x": NaN}',
        "[" * 100000,
    ],
)
def test_invalid_schemas_are_refused(text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse("JSON", text)


def test_reference_that_leads_to_itself_is_refused_when_it_is_compared() -> None:
    schema = parse("JSON", '{"$ref":"#"}')
    with pytest.raises(InvalidSchema, match="leads to itself"):
        schema.problems_reading(schema)
