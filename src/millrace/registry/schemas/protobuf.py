"""Protobuf schemas: source or a serialized descriptor, resolved against their references."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from google.protobuf import descriptor_pb2 as pb
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from millrace.registry.schemas.protobuf_source import parse_source
from millrace.registry.schemas.protobuf_text import print_source
from millrace.registry.schemas.schema import InvalidSchema, ParsedSchema, Problem

ROOT = "default"
"""The file name of the schema itself, which has none."""

# Files that every registry knows, beside those of Protobuf itself.
_CONFLUENT = {
    "confluent/meta.proto": """\
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
}
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
""",
    "confluent/type/decimal.proto": """\
syntax = "proto3";
package confluent.type;
message Decimal {
  bytes value = 1;
  uint32 precision = 2;
  int32 scale = 3;
}
""",
}


class ProtobufSchema(ParsedSchema):
    """A Protobuf schema. `source` has type names as they were written, `descriptor` has full ones."""

    type = "PROTOBUF"

    def __init__(
        self, source: pb.FileDescriptorProto, references: Mapping[str, pb.FileDescriptorProto]
    ) -> None:
        self.source = source
        self.canonical = print_source(source)
        self.file = _resolve(source, references)
        self.descriptor = pb.FileDescriptorProto()
        self.file.CopyToProto(self.descriptor)

    @property
    def serialized(self) -> str:
        """The descriptor in base64, as Confluent's Python client sends and expects schemas."""
        return base64.b64encode(self.descriptor.SerializeToString()).decode()

    def normalized(self) -> str:
        """The source with imports and fields sorted, and full names of types."""
        file = pb.FileDescriptorProto()
        file.CopyFrom(self.source)
        public = {file.dependency[index] for index in file.public_dependency}
        names = sorted(file.dependency)
        del file.dependency[:], file.public_dependency[:], file.weak_dependency[:]
        file.dependency.extend(names)
        file.public_dependency.extend(index for index, name in enumerate(names) if name in public)
        _copy_names(self.descriptor, file)
        for message in file.message_type:
            _sort_fields(message)
        return print_source(file)

    def problems_reading(self, written: ParsedSchema) -> list[Problem]:
        from millrace.registry.schemas.protobuf_compatibility import problems_reading

        assert isinstance(written, ProtobufSchema)
        return problems_reading(self, written)


def _copy_names(resolved: Any, written: Any) -> None:
    """Replace type names by the full ones of the same file."""
    for field, value in resolved.ListFields():
        if field.message_type is not None and field.is_repeated:
            for full, short in zip(value, getattr(written, field.name), strict=False):
                _copy_names(full, short)
        elif field.name in ("type_name", "extendee", "input_type", "output_type"):
            setattr(written, field.name, value)


def _sort_fields(message: Any) -> None:
    fields = sorted(message.field, key=lambda field: field.number)
    copies = []
    for field in fields:
        copy = pb.FieldDescriptorProto()
        copy.CopyFrom(field)
        copies.append(copy)
    del message.field[:]
    message.field.extend(copies)
    for nested in message.nested_type:
        if not nested.options.map_entry:
            _sort_fields(nested)


def parse(text: str, references: Mapping[str, str]) -> ProtobufSchema:
    """Parse a schema: the source of a .proto file, or a serialized FileDescriptorProto in base64."""
    files = {}
    for name, referenced in references.items():
        try:
            files[name] = _read(referenced)
        except InvalidSchema as error:
            raise InvalidSchema(f"Invalid reference {name}: {error.message}") from None
    return ProtobufSchema(_read(text), files)


def _read(text: str) -> pb.FileDescriptorProto:
    return _deserialized(text) or parse_source(text)


def _deserialized(text: str) -> pb.FileDescriptorProto | None:
    try:
        file = pb.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    file.ClearField("source_code_info")
    return file if file.ListFields() else None


def _resolve(
    source: pb.FileDescriptorProto, references: Mapping[str, pb.FileDescriptorProto]
) -> FileDescriptor:
    pool = DescriptorPool()
    added: set[str] = set()

    def add(name: str, file: pb.FileDescriptorProto) -> None:
        if name in added:
            return
        added.add(name)
        for needed in file.dependency:
            found = references.get(needed) or _well_known(needed)
            if found is None:
                raise InvalidSchema(f"import {needed} is not among the references of the schema")
            add(needed, found)
        pool.AddSerializedFile(_plain(name, file).SerializeToString())

    try:
        add(ROOT, source)
        return pool.FindFileByName(ROOT)
    except (TypeError, KeyError) as error:
        reason = str(error).removeprefix("Couldn't build proto file into descriptor pool: ")
        raise InvalidSchema(reason.strip("'\"")) from None


def _plain(name: str, file: pb.FileDescriptorProto) -> pb.FileDescriptorProto:
    """A copy under a name, without options that only a compiler could interpret."""
    copy = pb.FileDescriptorProto()
    copy.CopyFrom(file)
    copy.name = name
    if copy.syntax == "proto2":
        copy.ClearField("syntax")
    for options in _all_options(copy):
        options.ClearField("uninterpreted_option")
    return copy


def _all_options(message: Any) -> Iterator[Any]:
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for each in value if field.is_repeated else (value,):
            if field.name == "options":
                yield each
            else:
                yield from _all_options(each)


def _well_known(name: str) -> pb.FileDescriptorProto | None:
    if name in _CONFLUENT:
        return parse_source(_CONFLUENT[name])
    if not name.startswith("google/protobuf/") or not name.endswith(".proto"):
        return None
    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    if not all(part.isidentifier() for part in module.split(".")):
        return None
    try:
        descriptor = import_module(module).DESCRIPTOR
    except ImportError:
        return None
    file = pb.FileDescriptorProto()
    descriptor.CopyToProto(file)
    return file
