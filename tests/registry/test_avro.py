"""Avro: parsing, canonical form, and which schema reads which, pair by pair."""

import io
import json

import fastavro
import pytest
from fastavro.utils import generate_many

from millrace.registry.schemas import InvalidSchema, parse
from millrace.registry.schemas.avro import AvroSchema


def avro(schema: object, **references: object) -> AvroSchema:
    named = {name: json.dumps(each) for name, each in references.items()}
    parsed = parse("AVRO", json.dumps(schema), named)
    assert isinstance(parsed, AvroSchema)
    return parsed


def record(*fields: object, name: str = "R", **more: object) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": list(fields)} | more


def field(name: str, of: object, **more: object) -> dict[str, object]:
    return {"name": name, "type": of} | more


def enum(*symbols: str, **more: object) -> dict[str, object]:
    return {"type": "enum", "name": "E", "symbols": list(symbols)} | more


def fixed(size: int, name: str = "F") -> dict[str, object]:
    return {"type": "fixed", "name": name, "size": size}


A = field("a", "string")
B_DEFAULT = field("b", "int", default=1)

# The reader's schema, the writer's schema, and the kinds of problems.
PAIRS = [
    ("int", "int", []),
    ("long", "int", []),
    ("float", "int", []),
    ("double", "int", []),
    ("float", "long", []),
    ("double", "long", []),
    ("double", "float", []),
    ("string", "bytes", []),
    ("bytes", "string", []),
    ("int", "long", ["TYPE_MISMATCH"]),
    ("float", "double", ["TYPE_MISMATCH"]),
    ("string", "int", ["TYPE_MISMATCH"]),
    ("boolean", "int", ["TYPE_MISMATCH"]),
    (record(A), record(A), []),
    (record(A, B_DEFAULT), record(A), []),
    (record(A), record(A, B_DEFAULT), []),
    (record(A, field("b", "int")), record(A), ["READER_FIELD_MISSING_DEFAULT_VALUE"]),
    (record(field("z", "string", aliases=["a"])), record(A), []),
    (record(field("z", "string")), record(A), ["READER_FIELD_MISSING_DEFAULT_VALUE"]),
    (record(field("a", "int")), record(A), ["TYPE_MISMATCH"]),
    (record(A, name="Other"), record(A), ["NAME_MISMATCH"]),
    (record(A, name="Other", aliases=["R"]), record(A), []),
    (record(A, namespace="new"), record(A, namespace="old"), []),
    (enum("X", "Y"), enum("X"), []),
    (enum("X"), enum("X", "Y"), ["MISSING_ENUM_SYMBOLS"]),
    (enum("X", default="X"), enum("X", "Y"), []),
    (fixed(4), fixed(4), []),
    (fixed(4), fixed(5), ["FIXED_SIZE_MISMATCH"]),
    (fixed(4, "G"), fixed(4), ["NAME_MISMATCH"]),
    ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, []),
    ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, ["TYPE_MISMATCH"]),
    ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}, []),
    ({"type": "map", "values": "int"}, {"type": "array", "items": "int"}, ["TYPE_MISMATCH"]),
    (["null", "string"], "string", []),
    ("string", ["null", "string"], ["TYPE_MISMATCH"]),
    ("string", ["string"], []),
    (["null", "string", "int"], ["null", "string"], []),
    (["null", "string"], ["null", "string", "int"], ["MISSING_UNION_BRANCH"]),
    (["null", "long"], ["null", "int"], []),
    (["null", "int"], "string", ["MISSING_UNION_BRANCH"]),
    (record(field("next", ["null", "R"])), record(field("next", ["null", "R"])), []),
    (
        record(field("next", ["null", "R"]), field("v", "long")),
        record(field("next", ["null", "R"]), field("v", "int")),
        [],
    ),
    (
        record(field("next", ["null", "R"]), field("v", "int")),
        record(field("next", ["null", "R"]), field("v", "long")),
        ["TYPE_MISMATCH"],
    ),
]


@pytest.mark.parametrize(("reader", "writer", "kinds"), PAIRS)
def test_reader_and_writer_resolve_as_the_specification_says(
    reader: object, writer: object, kinds: list[str]
) -> None:
    assert [problem.kind for problem in avro(reader).problems_reading(avro(writer))] == kinds


@pytest.mark.parametrize(
    ("reader", "writer"),
    # fastavro compares full names, and random bytes are not text.
    [
        (reader, writer)
        for reader, writer, kinds in PAIRS
        if not kinds and "namespace" not in reader and (reader, writer) != ("string", "bytes")
    ],
)
def test_fastavro_reads_each_pair_that_is_compatible(reader: object, writer: object) -> None:
    written, read = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    for value in generate_many(written, 5):
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, written, value)
        buffer.seek(0)
        fastavro.schemaless_reader(buffer, written, read)


def test_reason_names_the_field_and_its_path() -> None:
    reader, writer = avro(record(A, field("b", "int"))), avro(record(A))
    (problem,) = reader.problems_reading(writer)
    assert str(problem) == (
        "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'b' at path '/fields/1' in"
        " the new schema has no default value and is missing in the old schema', additionalInfo:'b'}"
    )


def test_canonical_form_keeps_meaning_and_drops_layout() -> None:
    text = """ { "fields": [ {"type": {"type": "string"}, "name": "a", "doc": "d", "x": 1, "default": "q"} ],
        "name": "a.b.R", "type": "record", "aliases": ["Old"], "owner": "me" } """
    assert parse("AVRO", text).canonical == (
        '{"type":"record","name":"R","namespace":"a.b","fields":[{"name":"a","type":"string","doc":"d",'
        '"default":"q","x":1}],"owner":"me","aliases":["Old"]}'
    )


def test_canonical_form_defines_a_name_where_it_occurs_first() -> None:
    inner = record(field("x", "int"), name="Inner")
    schema = avro(record(field("a", inner), field("b", "n.Inner"), name="Outer", namespace="n"))
    fields = json.loads(schema.canonical)["fields"]
    assert fields[0]["type"] == {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}
    assert fields[1]["type"] == "Inner"


def test_canonical_form_is_a_fixed_point() -> None:
    for reader, _, _ in PAIRS:
        once = avro(reader).canonical
        assert parse("AVRO", once).canonical == once


def test_normal_form_ignores_the_order_of_properties_and_short_names() -> None:
    first = avro({"type": "record", "name": "n.R", "b": 1, "a": 2, "fields": []})
    second = avro({"type": "record", "name": "R", "namespace": "n", "a": 2, "b": 1, "fields": []})
    assert first.canonical != second.canonical
    assert first.normalized() == second.normalized()


def test_reference_gives_a_name_and_is_not_repeated() -> None:
    schema = avro(record(field("u", "n.User"), name="Order"), user=record(A, name="User", namespace="n"))
    assert json.loads(schema.canonical)["fields"][0]["type"] == "n.User"


def test_bare_name_of_a_primitive_is_a_schema() -> None:
    assert parse("AVRO", "string").canonical == '"string"'


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "record", "name": "R"},
        {"type": "record", "fields": []},
        {"type": "record", "name": "1R", "fields": []},
        {"type": "unknown"},
        {"no": "type"},
        [["null"], "int"],
        [["null", ["int"]]],
        ["int", "int"],
        enum("X", "X"),
        enum("no-dash"),
        enum("X", default="Y"),
        fixed(-1),
        record(A, A),
        record(field("a", "int", default="x")),
        record(field("a", ["null", "int"], default="x")),
        record(field("a", "Missing")),
        record(field("a", record(A))),
        {"type": "array"},
        {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 4},
        record(field("a", "int", order="sideways")),
        5,
        None,
    ],
)
def test_invalid_schemas_are_refused(schema: object) -> None:
    with pytest.raises(InvalidSchema):
        avro(schema)


def test_text_that_is_not_json_is_refused() -> None:
    with pytest.raises(InvalidSchema, match="not JSON"):
        parse("AVRO", "{")


def test_deep_nesting_is_refused_and_does_not_overflow() -> None:
    with pytest.raises(InvalidSchema, match="nested too deeply"):
        parse("AVRO", '{"type":"array","items":' * 5000 + '"int"' + "}" * 5000)
