"""Schemas without I/O: parsing, canonical form, references and compatibility.

    schema = parse("AVRO", '{"type": "string"}')
    schema.canonical            # the text that a registry stores and compares
    newer.problems_reading(older)   # why data of `older` cannot be read with `newer`

`avro`, `json_schema` and `protobuf` each have a module for the schema and one for its compatibility rules;
`levels` applies them to the versions of a subject.
"""

from collections.abc import Mapping
from importlib import import_module

from millrace.registry.schemas.schema import InvalidSchema, ParsedSchema, Problem, Reference

TYPES = ("JSON", "PROTOBUF", "AVRO")
"""The names of the schema types, as the registry lists them."""

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"

# Imported at first use: the protobuf library alone takes several megabytes.
_MODULES = {AVRO: "avro", JSON: "json_schema", PROTOBUF: "protobuf"}


def parse(schema_type: str, text: str, references: Mapping[str, str] | None = None) -> ParsedSchema:
    """Parse a schema; `references` are the texts of all schemas that it needs, by the names it uses.

    The order of the references is the order to read them in: one comes after those that it needs itself.
    Raises InvalidSchema.
    """
    if schema_type not in _MODULES:
        raise InvalidSchema(f"Invalid schema type {schema_type}; the types are {', '.join(TYPES)}")
    module = import_module(f"{__name__}.{_MODULES[schema_type]}")
    parsed: ParsedSchema = module.parse(text, references or {})
    return parsed


__all__ = [
    "AVRO",
    "JSON",
    "PROTOBUF",
    "TYPES",
    "InvalidSchema",
    "ParsedSchema",
    "Problem",
    "Reference",
    "parse",
]
