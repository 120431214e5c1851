"""Protobuf source to descriptors, with type names as the source writes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from google.protobuf import descriptor_pb2 as pb
from proto_schema_parser import ast
from proto_schema_parser.parser import Parser

from millrace.registry.schemas.schema import InvalidSchema

SCALARS = {
    name: getattr(pb.FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in (
        *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
        *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
    )
}
_LABELS = {
    None: pb.FieldDescriptorProto.LABEL_OPTIONAL,
    ast.FieldCardinality.OPTIONAL: pb.FieldDescriptorProto.LABEL_OPTIONAL,
    ast.FieldCardinality.REQUIRED: pb.FieldDescriptorProto.LABEL_REQUIRED,
    ast.FieldCardinality.REPEATED: pb.FieldDescriptorProto.LABEL_REPEATED,
}
_MAX_FIELD, _MAX_ENUM = 536870911, 2147483647


def parse_source(text: str) -> pb.FileDescriptorProto:
    """Parse a .proto file. Raises InvalidSchema with the line of the first error."""
    if not text.strip():
        raise InvalidSchema("the schema is empty")
    try:
        file = Parser(setup_lexer=_raise_errors, setup_parser=_raise_errors).parse(text)
        return _file(file)
    except RecursionError:
        raise InvalidSchema("the schema is nested too deeply") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidSchema(f"the schema is not a .proto file: {error}") from None


def _raise_errors(recognizer: Any) -> None:
    recognizer.removeErrorListeners()
    recognizer.addErrorListener(_Raise())


class _Raise:
    """Stops at the first error; the parser would otherwise guess and go on."""

    def syntaxError(
        self, recognizer: Any, symbol: Any, line: int, column: int, message: str, error: Any
    ) -> NoReturn:
        raise InvalidSchema(f"line {line}:{column}: {message.partition(' expecting {')[0]}")

    def reportAmbiguity(self, *details: Any) -> None:
        """Say nothing: the parser has decided."""

    reportAttemptingFullContext = reportContextSensitivity = reportAmbiguity


def _file(source: ast.File) -> pb.FileDescriptorProto:
    file = pb.FileDescriptorProto(syntax=source.syntax or ("editions" if source.edition else "proto2"))
    if source.edition:
        file.edition = pb.Edition.Value(f"EDITION_{source.edition}")
    is_proto3 = file.syntax == "proto3"
    for element in source.file_elements:
        match element:
            case ast.Package():
                file.package = element.name
            case ast.Import():
                if element.public:
                    file.public_dependency.append(len(file.dependency))
                if element.weak:
                    file.weak_dependency.append(len(file.dependency))
                file.dependency.append(element.name)
            case ast.Option():
                _option(file.options, element)
            case ast.Message():
                _message(file.message_type.add(), element, is_proto3)
            case ast.Enum():
                _enum(file.enum_type.add(), element)
            case ast.Extension():
                _extension(file.extension, element, is_proto3)
            case ast.Service():
                _service(file.service.add(), element)
    return file


def _message(message: Any, source: Any, is_proto3: bool) -> None:
    message.name = source.name
    optional = []
    for element in source.elements:
        match element:
            case ast.Field():
                field = _field(message.field.add(), element)
                if is_proto3 and element.cardinality is ast.FieldCardinality.OPTIONAL:
                    field.proto3_optional = True
                    optional.append(field)
            case ast.MapField():
                _map_field(message, element)
            case ast.Group():
                _group(message, message.field.add(), element, is_proto3)
            case ast.OneOf():
                _oneof(message, element, is_proto3)
            case _:
                _declaration(message, element, is_proto3)
    # Each optional field of proto3 is alone in a oneof, after all others.
    for field in optional:
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{field.name}")


def _declaration(message: Any, element: Any, is_proto3: bool) -> None:
    """Add an element of a message that is not a field."""
    match element:
        case ast.Option():
            _option(message.options, element)
        case ast.Message():
            _message(message.nested_type.add(), element, is_proto3)
        case ast.Enum():
            _enum(message.enum_type.add(), element)
        case ast.Extension():
            _extension(message.extension, element, is_proto3)
        case ast.ExtensionRange():
            for start, end in _ranges(element.ranges, _MAX_FIELD):
                message.extension_range.add(start=start, end=end + 1)
        case ast.Reserved():
            for start, end in _ranges(element.ranges, _MAX_FIELD):
                message.reserved_range.add(start=start, end=end + 1)
            message.reserved_name.extend(map(_unquoted, element.names))


def _field(field: Any, source: Any) -> Any:
    field.name, field.number = source.name, source.number
    field.label = _LABELS[getattr(source, "cardinality", None)]
    _set_type(field, source.type)
    for option in source.options:
        if option.name == "default":
            field.default_value = _default(option.value)
        elif option.name == "json_name":
            field.json_name = str(option.value)
        else:
            _option(field.options, option)
    return field


def _set_type(field: Any, name: str) -> None:
    if name in SCALARS:
        field.type = SCALARS[name]
    else:
        field.type_name = name.replace(" ", "")


def _default(value: Any) -> str:
    if isinstance(value, ast.Identifier):
        return value.name
    return str(value).lower() if isinstance(value, bool) else str(value)


def _map_field(message: Any, source: ast.MapField) -> None:
    entry_name = "".join(word[:1].upper() + word[1:] for word in source.name.split("_")) + "Entry"
    entry = message.nested_type.add(name=entry_name)
    entry.options.map_entry = True
    for number, (name, type_name) in enumerate((("key", source.key_type), ("value", source.value_type)), 1):
        part = entry.field.add(name=name, number=number, label=pb.FieldDescriptorProto.LABEL_OPTIONAL)
        _set_type(part, type_name)
    field = message.field.add(name=source.name, number=source.number, type_name=entry_name)
    field.label = pb.FieldDescriptorProto.LABEL_REPEATED
    field.type = pb.FieldDescriptorProto.TYPE_MESSAGE
    for option in source.options:
        _option(field.options, option)


def _group(message: Any, field: Any, source: ast.Group, is_proto3: bool) -> None:
    field.name, field.number = source.name.lower(), source.number
    field.label = _LABELS[source.cardinality]
    field.type = pb.FieldDescriptorProto.TYPE_GROUP
    field.type_name = source.name
    _message(message.nested_type.add(), source, is_proto3)


def _oneof(message: Any, source: ast.OneOf, is_proto3: bool) -> None:
    index = len(message.oneof_decl)
    oneof = message.oneof_decl.add(name=source.name)
    for element in source.elements:
        match element:
            case ast.Field():
                _field(message.field.add(oneof_index=index), element)
            case ast.Group():
                _group(message, message.field.add(oneof_index=index), element, is_proto3)
            case ast.Option():
                _option(oneof.options, element)


def _enum(enum: Any, source: ast.Enum) -> None:
    enum.name = source.name
    for element in source.elements:
        match element:
            case ast.EnumValue():
                value = enum.value.add(name=element.name, number=element.number)
                for option in element.options:
                    _option(value.options, option)
            case ast.Option():
                _option(enum.options, element)
            case ast.EnumReserved():
                for start, end in _ranges(element.ranges, _MAX_ENUM):
                    enum.reserved_range.add(start=start, end=end)
                enum.reserved_name.extend(map(_unquoted, element.names))


def _extension(extensions: Any, source: ast.Extension, is_proto3: bool) -> None:
    for element in source.elements:
        if isinstance(element, ast.Field):
            field = _field(extensions.add(extendee=source.typeName), element)
            if is_proto3 and element.cardinality is ast.FieldCardinality.OPTIONAL:
                field.proto3_optional = True
        elif isinstance(element, ast.Group):
            raise InvalidSchema(f"group {element.name}: groups in extensions are not supported")


def _service(service: Any, source: ast.Service) -> None:
    service.name = source.name
    for element in source.elements:
        if isinstance(element, ast.Option):
            _option(service.options, element)
        elif isinstance(element, ast.Method):
            method = service.method.add(
                name=element.name,
                input_type=element.input_type.type,
                output_type=element.output_type.type,
                client_streaming=element.input_type.stream,
                server_streaming=element.output_type.stream,
            )
            for option in element.elements:
                if isinstance(option, ast.Option):
                    _option(method.options, option)


def _ranges(texts: Iterable[str], highest: int) -> Iterable[tuple[int, int]]:
    for text in texts:
        first, _, last = text.partition("to")
        start = int(first, 0)
        end = start if not last.strip() else highest if last.strip() == "max" else int(last, 0)
        yield start, end


def _unquoted(name: str) -> str:
    return name.strip("\"'")


# Options


def _option(options: Any, source: ast.Option) -> None:
    """Set an option of Protobuf's own; keep every other one as the source has it."""
    known = options.DESCRIPTOR.fields_by_name.get(source.name)
    value = source.value
    if known is not None and not isinstance(value, ast.MessageLiteral | list) and not known.is_repeated:
        if known.enum_type is not None and isinstance(value, ast.Identifier):
            named = known.enum_type.values_by_name.get(value.name)
            if named is None:
                raise InvalidSchema(f"option {source.name} has no value {value.name}")
            value = named.number
        try:
            setattr(options, source.name, value)
        except TypeError:
            raise InvalidSchema(f"option {source.name}: {value!r} is of the wrong type") from None
        return
    kept = options.uninterpreted_option.add()
    for part, is_extension in _name_parts(source.name):
        kept.name.add(name_part=part, is_extension=is_extension)
    _keep_value(kept, value)


def _name_parts(name: str) -> Iterable[tuple[str, bool]]:
    while name:
        if name.startswith("("):
            part, _, name = name[1:].partition(")")
            yield part, True
        else:
            part, _, name = name.partition(".")
            yield part, False
        name = name.lstrip(".")


def _keep_value(kept: Any, value: Any) -> None:
    if isinstance(value, bool):
        kept.identifier_value = str(value).lower()
    elif isinstance(value, ast.Identifier):
        kept.identifier_value = value.name
    elif isinstance(value, int):
        if value >= 0:
            kept.positive_int_value = value
        else:
            kept.negative_int_value = value
    elif isinstance(value, float):
        kept.double_value = value
    elif isinstance(value, str):
        kept.string_value = value.encode()
    else:
        kept.aggregate_value = _literal(value)


def _literal(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case ast.Identifier():
            return value.name
        case str():
            escaped = value.replace("\\", "\\\\").replace('"', '\\"')
            return f'"{escaped}"'
        case list():
            return f"[{', '.join(map(_literal, value))}]"
        case ast.MessageLiteral():
            fields = [each for each in value.elements if isinstance(each, ast.MessageLiteralField)]
            return "{ " + ", ".join(f"{each.name}: {_literal(each.value)}" for each in fields) + " }"
    return str(value)
