"""Protobuf: parsing, canonical form, serialized descriptors, and compatibility, pair by pair."""

import base64

import pytest
from google.protobuf import descriptor_pb2

from millrace.registry.schemas import InvalidSchema, parse
from millrace.registry.schemas.protobuf import ProtobufSchema


def proto(text: str, **references: str) -> ProtobufSchema:
    parsed = parse("PROTOBUF", text, {f"{name}.proto": each for name, each in references.items()})
    assert isinstance(parsed, ProtobufSchema)
    return parsed


def message(body: str, rest: str = "", syntax: str = "proto3") -> str:
    return f'syntax = "{syntax}"; message M {{ {body} }} {rest}'


OLD = "message N { string a = 1; }"
PAIRS = [
    # The new schema, the old schema, and the kinds of problems.
    (message("string a = 1;"), message("string a = 1;"), []),
    (message("string a = 1; int32 b = 2;"), message("string a = 1;"), []),
    (message("string a = 1;"), message("string a = 1; int32 b = 2;"), []),
    (message("string renamed = 1;"), message("string a = 1;"), []),
    (message("bytes a = 1;"), message("string a = 1;"), []),
    (message("int64 a = 1;"), message("int32 a = 1;"), []),
    (message("bool a = 1;"), message("uint64 a = 1;"), []),
    (message("E a = 1;", "enum E { X = 0; }"), message("int32 a = 1;"), []),
    (message("sint64 a = 1;"), message("sint32 a = 1;"), []),
    (message("sfixed32 a = 1;"), message("fixed32 a = 1;"), []),
    (message("sint32 a = 1;"), message("int32 a = 1;"), ["FIELD_SCALAR_KIND_CHANGED"]),
    (message("fixed32 a = 1;"), message("int32 a = 1;"), ["FIELD_SCALAR_KIND_CHANGED"]),
    (message("fixed64 a = 1;"), message("fixed32 a = 1;"), ["FIELD_SCALAR_KIND_CHANGED"]),
    (message("string a = 1;"), message("int32 a = 1;"), ["FIELD_SCALAR_KIND_CHANGED"]),
    (message("double a = 1;"), message("float a = 1;"), ["FIELD_SCALAR_KIND_CHANGED"]),
    (message("N a = 1;", OLD), message("string a = 1;", OLD), ["FIELD_KIND_CHANGED"]),
    (message("map<string, string> a = 1;"), message("string a = 1;"), ["FIELD_KIND_CHANGED"]),
    (message("map<string, int64> a = 1;"), message("map<string, int32> a = 1;"), []),
    (
        message("map<string, string> a = 1;"),
        message("map<string, int32> a = 1;"),
        ["FIELD_SCALAR_KIND_CHANGED"],
    ),
    (message("repeated string a = 1;"), message("string a = 1;"), []),
    (message("repeated int32 a = 1;"), message("int32 a = 1;"), ["FIELD_NUMERIC_LABEL_CHANGED"]),
    (message(""), message("", "message Gone {}"), ["MESSAGE_REMOVED"]),
    (message("", "message Added {}"), message(""), []),
    (
        'syntax = "proto3"; package b; message M {}',
        'syntax = "proto3"; package a; message M {}',
        ["PACKAGE_CHANGED"],
    ),
    (message("string a = 1; message In {}"), message("string a = 1;"), []),
    (message("string a = 1;"), message("string a = 1; message In {}"), ["MESSAGE_REMOVED"]),
    (
        message("N a = 1;", "message N { string a = 1; } message O { string a = 1; }"),
        message("O a = 1;", "message N { string a = 1; } message O { string a = 1; }"),
        ["FIELD_NAMED_TYPE_CHANGED"],
    ),
    (
        message("N a = 1;", "message N { int32 a = 1; }"),
        message("N a = 1;", OLD),
        ["FIELD_SCALAR_KIND_CHANGED", "FIELD_NAMED_TYPE_CHANGED"],
    ),
    (message("E a = 1;", "enum E { X = 0; Y = 1; }"), message("E a = 1;", "enum E { X = 0; }"), []),
    (message("E a = 1;", "enum E { X = 0; }"), message("E a = 1;", "enum E { X = 0; Y = 1; }"), []),
    (message("oneof o { string a = 1; }"), message("string a = 1;"), []),
    (
        message("oneof o { string a = 1; string b = 2; }"),
        message("string a = 1; string b = 2;"),
        ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"],
    ),
    (
        message("oneof o { string a = 1; string b = 2; }"),
        message("string b = 2; oneof o { string a = 1; }"),
        ["FIELD_MOVED_TO_EXISTING_ONEOF"],
    ),
    (message("oneof o { string a = 1; string b = 2; }"), message("oneof o { string a = 1; }"), []),
    (
        message("oneof o { string a = 1; }"),
        message("oneof o { string a = 1; string b = 2; }"),
        ["ONEOF_FIELD_REMOVED"],
    ),
    (message("string a = 1;"), message("oneof o { string a = 1; }"), []),
    (message("optional string a = 1;"), message("string a = 1;"), []),
    (
        message("required int32 a = 1;", syntax="proto2"),
        message("", syntax="proto2"),
        ["REQUIRED_FIELD_ADDED"],
    ),
    (
        message("", syntax="proto2"),
        message("required int32 a = 1;", syntax="proto2"),
        ["REQUIRED_FIELD_REMOVED"],
    ),
    (
        message("required int32 a = 1;", syntax="proto2"),
        message("optional int32 a = 1;", syntax="proto2"),
        ["REQUIRED_FIELD_ADDED"],
    ),
    (message("M next = 1; int64 v = 2;"), message("M next = 1; int32 v = 2;"), []),
]


@pytest.mark.parametrize(("new", "old", "kinds"), PAIRS)
def test_new_schema_reads_old_messages_or_says_why_not(new: str, old: str, kinds: list[str]) -> None:
    problems = proto(new).problems_reading(proto(old))
    # A message is compared as a type of its own and as the type of fields.
    assert sorted({problem.kind for problem in problems}) == sorted(kinds)


def test_every_schema_is_compatible_with_itself_and_prints_the_same_again() -> None:
    for new, old, _ in PAIRS:
        for text in (new, old):
            schema = proto(text)
            assert schema.problems_reading(schema) == []
            assert proto(schema.canonical).canonical == schema.canonical


FULL = """\
syntax = "proto3";
package shop.orders;

import "google/protobuf/timestamp.proto";
import "item.proto";

option java_package = "com.shop";

message Order {
  option deprecated = true;
  reserved 10;
  reserved 20 to 30;
  reserved "old";
  string id = 1;
  optional int32 count = 2;
  repeated Item items = 3;
  map<string, int64> totals = 4 [deprecated = true];
  google.protobuf.Timestamp at = 5;
  string name = 6 [json_name = "title", (my.option) = { a: 1, b: "x" }];

  oneof payment {
    string card = 7;
    bool cash = 8;
  }

  message Address {
    string street = 1;
  }

  enum State {
    OPEN = 0;
    PAID = 1;
  }
}

service Orders {
  rpc Get (Order) returns (stream Order);
}
"""
ITEM = 'syntax = "proto3"; package shop.orders; message Item { string name = 1; }'


def test_canonical_form_of_source_in_that_form_is_the_source() -> None:
    assert proto(FULL, item=ITEM).canonical == FULL


def test_comments_and_layout_do_not_count() -> None:
    assert (
        proto("syntax='proto3';message M{/* x */string a=1;// y\n}").canonical
        == proto('syntax = "proto3";\n\nmessage M {\n  string a = 1;\n}\n').canonical
    )


def test_serialized_descriptor_is_the_same_schema_with_full_names() -> None:
    schema = proto(FULL, item=ITEM)
    again = proto(schema.serialized, item=ITEM)
    assert again.serialized == schema.serialized
    assert ".shop.orders.Item items = 3" in again.canonical
    assert again.problems_reading(schema) == schema.problems_reading(again) == []
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema.serialized))
    assert [message.name for message in file.message_type] == ["Order"]


def test_normal_form_ignores_the_order_of_fields_and_imports() -> None:
    others = {name.lower(): f'syntax = "proto3"; message {name} {{}}' for name in "AB"}
    head, a, b = 'syntax = "proto3";', 'import "a.proto";', 'import "b.proto";'
    first = proto(f"{head} {a} {b} message M {{ A a = 1; string b = 2; }}", **others)
    second = proto(f"{head} {b} {a} message M {{ string b = 2; .A a = 1; }}", **others)
    assert first.canonical != second.canonical
    assert first.normalized() == second.normalized()


def test_options_of_confluent_are_known() -> None:
    text = """syntax = "proto3"; import "confluent/meta.proto"; import "confluent/type/decimal.proto";
        message M { confluent.type.Decimal d = 1 [(confluent.field_meta) = { doc: "price" }]; }"""
    schema = proto(text)
    assert '(confluent.field_meta) = { doc: "price" }' in schema.canonical
    assert '(confluent.field_meta) = { doc: "price" }' in schema.normalized()


def test_reference_is_compared_by_content() -> None:
    text = 'syntax = "proto3"; import "n.proto"; message M { N n = 1; }'
    old = proto(text, n='syntax = "proto3"; message N { string a = 1; }')
    new = proto(text, n='syntax = "proto3"; message N { int32 a = 1; }')
    assert "FIELD_SCALAR_KIND_CHANGED" in {problem.kind for problem in new.problems_reading(old)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "message {",
        message("Missing a = 1;"),
        message("string a = 1; string b = 1;"),
        message("string a = 0;"),
        'syntax = "proto3"; import "missing.proto"; message M {}',
        'syntax = "proto3"; import "google/protobuf/../../x.proto"; message M {}',
        'syntax = "proto3"; message M {} message M {}',
        'syntax = "proto9"; message M {}',
        "not a schema at all",
    ],
)
def test_invalid_schemas_are_refused(text: str) -> None:
    with pytest.raises(InvalidSchema):
        proto(text)
