"""Types of Spark and types of schemas: Avro, JSON Schema and Protobuf, in both directions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from millrace.registry.schemas import AVRO, JSON, PROTOBUF, InvalidSchema, parse

_ATOMIC_AVRO: dict[type[DataType], Any] = {
    BooleanType: "boolean",
    ByteType: "int",
    ShortType: "int",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    StringType: "string",
    BinaryType: "bytes",
    DateType: {"type": "int", "logicalType": "date"},
    TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}
_ATOMIC_JSON: dict[type[DataType], Any] = {
    BooleanType: {"type": "boolean"},
    ByteType: {"type": "integer"},
    ShortType: {"type": "integer"},
    IntegerType: {"type": "integer"},
    LongType: {"type": "integer"},
    FloatType: {"type": "number"},
    DoubleType: {"type": "number"},
    DecimalType: {"type": "number"},
    StringType: {"type": "string"},
    BinaryType: {"type": "string", "contentEncoding": "base64"},
    DateType: {"type": "string", "format": "date"},
    TimestampType: {"type": "string", "format": "date-time"},
    TimestampNTZType: {"type": "string"},
}


def to_schema(schema_type: str, row: StructType, topic: str) -> str:
    """The schema of a row; nullable columns are optional. Raises ValueError."""
    name = re.sub(r"\W", "_", topic, flags=re.ASCII)
    name = name if not name[:1].isdigit() else f"_{name}"
    if schema_type == AVRO:
        return json.dumps(_to_avro(row, name))
    if schema_type == JSON:
        draft = "http://json-schema.org/draft-07/schema#"
        return json.dumps({"$schema": draft, "title": name, **_to_json_schema(row)})
    raise ValueError('a Protobuf output needs its schema: log.protobuf("orders", "syntax = ...")')


def record_name(schema_type: str, text: str) -> str:
    """The name of a record, for strategies that name subjects by it. Raises InvalidSchema."""
    from millrace.registry.codecs import codec

    return codec(schema_type, text).record_name


def _to_avro(data_type: DataType, name: str) -> Any:
    match data_type:
        case StructType():
            return {
                "type": "record",
                "name": name,
                "fields": [_avro_field(f, name) for f in data_type.fields],
            }
        case ArrayType():
            return {
                "type": "array",
                "items": _avro_optional(data_type.elementType, data_type.containsNull, f"{name}_item"),
            }
        case MapType() if isinstance(data_type.keyType, StringType):
            return {
                "type": "map",
                "values": _avro_optional(data_type.valueType, data_type.valueContainsNull, f"{name}_value"),
            }
        case DecimalType():
            return {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": data_type.precision,
                "scale": data_type.scale,
            }
    if type(data_type) not in _ATOMIC_AVRO:
        raise ValueError(f"Avro has no type for {data_type.simpleString()}; cast it")
    return _ATOMIC_AVRO[type(data_type)]


def _avro_field(field: StructField, name: str) -> dict[str, Any]:
    if not re.fullmatch(r"[A-Za-z_]\w*", field.name, re.ASCII):
        raise ValueError(f"Avro has no field {field.name!r}: a name has letters, digits and underscores")
    written = {
        "name": field.name,
        "type": _avro_optional(field.dataType, field.nullable, f"{name}_{field.name}"),
    }
    return written | ({"default": None} if field.nullable else {})


def _avro_optional(data_type: DataType, nullable: bool, name: str) -> Any:
    found = _to_avro(data_type, name)
    return ["null", found] if nullable else found


def _to_json_schema(data_type: DataType) -> dict[str, Any]:
    match data_type:
        case StructType():
            properties = {field.name: _to_json_schema(field.dataType) for field in data_type.fields}
            required = [field.name for field in data_type.fields if not field.nullable]
            # Closed: a version that adds a property can then read the older ones.
            body = {"type": "object", "properties": properties, "additionalProperties": False}
            return body | ({"required": required} if required else {})
        case ArrayType():
            return {"type": "array", "items": _to_json_schema(data_type.elementType)}
        case MapType():
            return {"type": "object", "additionalProperties": _to_json_schema(data_type.valueType)}
    if type(data_type) not in _ATOMIC_JSON:
        raise ValueError(f"JSON Schema has no type for {data_type.simpleString()}; cast it")
    return dict(_ATOMIC_JSON[type(data_type)])


# To Spark


def whole_avro(text: str, references: Mapping[str, str]) -> Any:
    """An Avro schema with the schemas that it refers to inside of it: Spark knows no references."""
    if not references:
        return json.loads(parse(AVRO, text).canonical)
    known: dict[str, Any] = {}
    earlier: dict[str, str] = {}
    for reference, each in references.items():
        loaded = json.loads(parse(AVRO, each, earlier).canonical)
        earlier[reference] = each
        if isinstance(loaded, dict) and "name" in loaded:
            space = loaded.get("namespace")
            known[f"{space}.{loaded['name']}" if space else loaded["name"]] = loaded
    return _inlined(json.loads(parse(AVRO, text, references).canonical), known, set())


def _inlined(value: Any, known: Mapping[str, Any], defined: set[str]) -> Any:
    """Replace the first use of each known name by its definition."""
    if isinstance(value, str) and value in known and value not in defined:
        defined.add(value)
        return _inlined(known[value], known, defined)
    if isinstance(value, list):
        return [_inlined(each, known, defined) for each in value]
    if isinstance(value, dict):
        parts = ("type", "items", "values", "fields")
        return {
            name: _inlined(each, known, defined) if name in parts else each for name, each in value.items()
        }
    return value


def from_avro_schema(schema: Any) -> StructType:
    """The columns of an Avro record, as Spark's own conversion has them. Raises ValueError."""
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ValueError("it is not a record")
    from pyspark.sql import SparkSession

    session = SparkSession.active()
    jvm: Any = session._jvm
    parsed = jvm.org.apache.avro.Schema.Parser().parse(json.dumps(schema))
    converted = jvm.org.apache.spark.sql.avro.SchemaConverters.toSqlType(parsed)
    return StructType.fromJson(json.loads(converted.dataType().json()))


def from_json_schema(schema: Any) -> StructType:
    """The columns of a JSON Schema of an object. Raises ValueError."""
    found = _from_json(schema, schema)
    if not isinstance(found, StructType):
        raise ValueError("it is not an object with properties")
    return found


def _from_json(schema: Any, root: Any, depth: int = 0) -> DataType:
    if depth > 50:
        raise ValueError("it refers to itself, and Spark has no such types")
    if not isinstance(schema, dict):
        return StringType()
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        target = root
        for word in reference[2:].split("/"):
            target = target[word.replace("~1", "/").replace("~0", "~")]
        return _from_json(target, root, depth + 1)
    for combiner in ("oneOf", "anyOf"):
        if combiner in schema:
            others = [each for each in schema[combiner] if each != {"type": "null"}]
            return _from_json(others[0], root, depth + 1) if len(others) == 1 else StringType()
    kinds = schema.get("type")
    kinds = [kind for kind in kinds if kind != "null"] if isinstance(kinds, list) else [kinds]
    kind = kinds[0] if len(kinds) == 1 else None
    if kind == "object" or (kind is None and "properties" in schema):
        return _from_json_object(schema, root, depth)
    if kind == "array":
        return ArrayType(_from_json(schema.get("items", {}), root, depth + 1))
    if kind == "string" and schema.get("format") in ("date-time", "date"):
        return TimestampType() if schema["format"] == "date-time" else DateType()
    atomic: dict[Any, DataType] = {"integer": LongType(), "number": DoubleType(), "boolean": BooleanType()}
    # Everything else is kept as text.
    return atomic.get(kind, StringType())


def _from_json_object(schema: Any, root: Any, depth: int) -> DataType:
    properties = schema.get("properties")
    if properties:
        fields = [StructField(name, _from_json(each, root, depth + 1)) for name, each in properties.items()]
        return StructType(fields)
    additional = schema.get("additionalProperties")
    return MapType(StringType(), _from_json(additional, root, depth + 1) if additional else StringType())


# Protobuf


def from_protobuf(text: str, references: Mapping[str, str]) -> StructType:
    """The columns of the first message type. Raises InvalidSchema and ValueError."""
    file: Any = parse(PROTOBUF, text, references)
    first = next(iter(file.file.message_types_by_name.values()), None)
    if first is None:
        raise ValueError("it has no message type")
    return _from_message(first, ())


def _from_message(message: Any, outer: tuple[str, ...]) -> StructType:
    if message.full_name in outer:
        raise ValueError(f"{message.full_name} refers to itself, and Spark has no such types")
    path = (*outer, message.full_name)
    return StructType([StructField(field.name, _from_field(field, path)) for field in message.fields])


def _from_field(field: Any, path: tuple[str, ...]) -> DataType:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        parts = field.message_type.fields_by_name
        return MapType(StringType(), _from_single(parts["value"], path))
    single = _from_single(field, path)
    return ArrayType(single) if field.is_repeated else single


def _from_single(field: Any, path: tuple[str, ...]) -> DataType:
    if field.message_type is not None:
        return _from_message(field.message_type, path)
    kinds: dict[int, DataType] = {
        field.CPPTYPE_INT32: IntegerType(),
        field.CPPTYPE_INT64: LongType(),
        field.CPPTYPE_UINT32: LongType(),
        field.CPPTYPE_UINT64: DecimalType(20, 0),
        field.CPPTYPE_DOUBLE: DoubleType(),
        field.CPPTYPE_FLOAT: FloatType(),
        field.CPPTYPE_BOOL: BooleanType(),
        field.CPPTYPE_ENUM: StringType(),
    }
    return BinaryType() if field.type == field.TYPE_BYTES else kinds.get(field.cpp_type, StringType())


def protobuf_json(writers: Mapping[int, tuple[str, dict[str, str]]], value: bytes) -> str | None:
    """A framed message as JSON for Spark's types; None if it cannot be read."""
    from google.protobuf import message_factory
    from google.protobuf.message import DecodeError

    from millrace.registry.codecs import ProtobufCodec, codec
    from millrace.registry.framing import NotFramed, unframe, unpack_indexes

    try:
        schema_id, data = unframe(value)
        if schema_id not in writers:
            return None
        found = codec(PROTOBUF, *writers[schema_id])
        assert isinstance(found, ProtobufCodec)
        indexes, rest = unpack_indexes(data)
        message = message_factory.GetMessageClass(found.type_at(indexes)).FromString(rest)
    except (NotFramed, DecodeError, IndexError, InvalidSchema):
        return None
    return json.dumps(_message_values(message))


def _message_values(message: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            of = field.message_type.fields_by_name["value"]
            values[field.name] = {str(key): _single_value(of, each) for key, each in value.items()}
        elif field.is_repeated:
            values[field.name] = [_single_value(field, each) for each in value]
        elif not field.has_presence or message.HasField(field.name):
            values[field.name] = _single_value(field, value)
    return values


def _single_value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _message_values(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return str(value) if named is None else named.name
    if isinstance(value, bytes):
        import base64

        return base64.b64encode(value).decode()
    return value
