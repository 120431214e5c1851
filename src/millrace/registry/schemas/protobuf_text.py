"""Descriptors to Protobuf source, in one fixed layout: the canonical form of a Protobuf schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf import descriptor_pb2 as pb

from millrace.registry.schemas.protobuf_source import SCALARS

_Field = pb.FieldDescriptorProto
_SCALAR_NAMES = {number: name for name, number in SCALARS.items()}
_MAX_FIELD, _MAX_ENUM = 536870911, 2147483647


def print_source(file: pb.FileDescriptorProto) -> str:
    """The source of a file, without comments."""
    if file.syntax == "editions":
        edition = pb.Edition.Name(file.edition).removeprefix("EDITION_")
        lines = [f'edition = "{edition}";']
    else:
        lines = [f'syntax = "{file.syntax or "proto2"}";']
    if file.package:
        lines.append(f"package {file.package};")
    if file.dependency:
        lines.append("")
        for index, name in enumerate(file.dependency):
            kind = (
                "public "
                if index in file.public_dependency
                else "weak "
                if index in file.weak_dependency
                else ""
            )
            lines.append(f'import {kind}"{name}";')
    options = list(_options(file.options))
    if options:
        lines += ["", *(f"option {option};" for option in options)]
    for message in file.message_type:
        lines += ["", *_message(message, file)]
    for enum in file.enum_type:
        lines += ["", *_enum(enum)]
    lines += _extensions(file.extension, file)
    for service in file.service:
        lines += ["", *_service(service)]
    return "\n".join(lines) + "\n"


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" if line else line for line in lines)


def _message(message: Any, file: pb.FileDescriptorProto) -> list[str]:
    return [f"message {message.name} {{", *_indented(_body(message, file)), "}"]


def _body(message: Any, file: pb.FileDescriptorProto) -> list[str]:
    lines = [f"option {option};" for option in _options(message.options)]
    for each in message.reserved_range:
        lines.append(f"reserved {_range(each.start, each.end - 1, _MAX_FIELD)};")
    for name in message.reserved_name:
        lines.append(f'reserved "{name}";')
    entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    groups = {
        field.type_name.rpartition(".")[2] for field in message.field if field.type == _Field.TYPE_GROUP
    }
    nested = {each.name: each for each in message.nested_type}
    for field in message.field:
        if not field.HasField("oneof_index") or field.proto3_optional:
            lines += _field(field, entries, nested, file)
    for index, oneof in enumerate(message.oneof_decl):
        members = [f for f in message.field if f.HasField("oneof_index") and f.oneof_index == index]
        if any(member.proto3_optional for member in members):
            continue
        inner = [f"option {option};" for option in _options(oneof.options)]
        for member in members:
            inner += _field(member, entries, nested, file, is_in_oneof=True)
        lines += ["", f"oneof {oneof.name} {{", *_indented(inner), "}"]
    for each in message.extension_range:
        lines.append(f"extensions {_range(each.start, each.end - 1, _MAX_FIELD)};")
    for each in message.nested_type:
        if each.name not in entries and each.name not in groups:
            lines += ["", *_message(each, file)]
    for enum in message.enum_type:
        lines += ["", *_enum(enum)]
    lines += _extensions(message.extension, file)
    return lines


def _range(start: int, end: int, highest: int) -> str:
    return str(start) if start == end else f"{start} to {'max' if end == highest else end}"


def _field(
    field: Any,
    entries: dict[str, Any],
    nested: dict[str, Any],
    file: pb.FileDescriptorProto,
    *,
    is_in_oneof: bool = False,
) -> list[str]:
    short = field.type_name.rpartition(".")[2]
    options = list(_field_options(field))
    suffix = f" [{', '.join(options)}]" if options else ""
    if field.label == _Field.LABEL_REPEATED and short in entries:
        key, value = entries[short].field
        return [f"map<{_type(key)}, {_type(value)}> {field.name} = {field.number}{suffix};"]
    label = "" if is_in_oneof else _label(field, file)
    if field.type == _Field.TYPE_GROUP and short in nested:
        head = f"{label}group {short} = {field.number} {{"
        return [head, *_indented(_body(nested[short], file)), "}"]
    return [f"{label}{_type(field)} {field.name} = {field.number}{suffix};"]


def _label(field: Any, file: pb.FileDescriptorProto) -> str:
    if field.label == _Field.LABEL_REPEATED:
        return "repeated "
    if field.label == _Field.LABEL_REQUIRED:
        return "required "
    is_written = field.proto3_optional or (file.syntax or "proto2") == "proto2"
    return "optional " if is_written else ""


def _type(field: Any) -> str:
    return str(field.type_name) if field.type_name else _SCALAR_NAMES[field.type]


def _field_options(field: Any) -> Iterator[str]:
    if field.HasField("default_value"):
        is_quoted = field.type in (_Field.TYPE_STRING, _Field.TYPE_BYTES)
        yield f"default = {_quoted(field.default_value) if is_quoted else field.default_value}"
    if field.json_name and field.json_name != json_name(field.name):
        yield f"json_name = {_quoted(field.json_name)}"
    yield from _options(field.options)


def json_name(name: str) -> str:
    """The name of a field in JSON, if the schema gives none."""
    letters, is_upper = [], False
    for letter in name:
        if letter == "_":
            is_upper = True
        else:
            letters.append(letter.upper() if is_upper else letter)
            is_upper = False
    return "".join(letters)


def _enum(enum: Any) -> list[str]:
    lines = [f"option {option};" for option in _options(enum.options)]
    for each in enum.reserved_range:
        lines.append(f"reserved {_range(each.start, each.end, _MAX_ENUM)};")
    for name in enum.reserved_name:
        lines.append(f'reserved "{name}";')
    for value in enum.value:
        options = list(_options(value.options))
        suffix = f" [{', '.join(options)}]" if options else ""
        lines.append(f"{value.name} = {value.number}{suffix};")
    return [f"enum {enum.name} {{", *_indented(lines), "}"]


def _extensions(extensions: Any, file: pb.FileDescriptorProto) -> list[str]:
    lines: list[str] = []
    for extendee in dict.fromkeys(each.extendee for each in extensions):
        inner: list[str] = []
        for each in extensions:
            if each.extendee == extendee:
                inner += _field(each, {}, {}, file)
        lines += ["", f"extend {extendee} {{", *_indented(inner), "}"]
    return lines


def _service(service: Any) -> list[str]:
    lines = [f"option {option};" for option in _options(service.options)]
    for method in service.method:
        request = ("stream " if method.client_streaming else "") + method.input_type
        response = ("stream " if method.server_streaming else "") + method.output_type
        head = f"rpc {method.name} ({request}) returns ({response})"
        options = [f"option {option};" for option in _options(method.options)]
        lines += [f"{head} {{", *_indented(options), "}"] if options else [f"{head};"]
    return [f"service {service.name} {{", *_indented(lines), "}"]


def _options(options: Any) -> Iterator[str]:
    for field, value in options.ListFields():
        if field.name == "uninterpreted_option":
            for kept in value:
                yield f"{_option_name(kept)} = {_option_value(kept)}"
        elif field.name != "map_entry":
            name = f"({field.full_name})" if field.is_extension else field.name
            for each in value if field.is_repeated else (value,):
                yield f"{name} = {_known_value(field, each)}"


def _option_name(kept: Any) -> str:
    return ".".join(f"({part.name_part})" if part.is_extension else part.name_part for part in kept.name)


def _option_value(kept: Any) -> str:
    for name in ("identifier_value", "positive_int_value", "negative_int_value", "double_value"):
        if kept.HasField(name):
            return str(getattr(kept, name))
    if kept.HasField("aggregate_value"):
        return str(kept.aggregate_value)
    return _quoted(kept.string_value.decode())


def _known_value(field: Any, value: Any) -> str:
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if field.message_type is not None:
        from google.protobuf import text_format

        return f"{{ {text_format.MessageToString(value, as_one_line=True)} }}"
    if isinstance(value, bool):
        return str(value).lower()
    return _quoted(value) if isinstance(value, str) else str(value)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
