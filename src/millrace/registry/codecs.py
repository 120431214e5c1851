"""Values to the bytes of a schema and back; values are JSON, as people and HTTP clients write them."""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from millrace.registry.framing import NotFramed, pack_indexes, unpack_indexes
from millrace.registry.schemas import AVRO, JSON, InvalidSchema, parse


class BadValue(ValueError):
    """A value that does not fit its schema, or bytes that cannot be read with it."""


class Codec(ABC):
    """Encodes and decodes the values of one schema; the header of a record is not part of the bytes."""

    record_name: str = ""
    """The full name of the record or message, for strategies that name subjects by it."""

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """Bytes of a value. Raises BadValue."""

    @abstractmethod
    def decode(self, data: bytes) -> Any:
        """The value of bytes. Raises BadValue."""


def codec(schema_type: str, text: str, references: Mapping[str, str] | None = None) -> Codec:
    """The codec of a schema. Raises InvalidSchema."""
    return _codec(schema_type, text, tuple((references or {}).items()))


@lru_cache(500)
def _codec(schema_type: str, text: str, references: tuple[tuple[str, str], ...]) -> Codec:
    if schema_type == AVRO:
        return AvroCodec(text, dict(references))
    if schema_type == JSON:
        return JsonCodec(text, dict(references))
    return ProtobufCodec(text, dict(references))


class AvroCodec(Codec):
    """Avro; values are in Avro's own JSON encoding, where a union names its branch: {"string": "x"}."""

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        import fastavro

        parsed = parse(AVRO, text, references)
        names: dict[str, Any] = {}
        for referenced in references.values():
            fastavro.parse_schema(json.loads(referenced), names)
        self.schema = fastavro.parse_schema(json.loads(parsed.canonical), names)
        self.record_name = self.schema.get("name", "") if isinstance(self.schema, dict) else ""

    def encode(self, value: Any) -> bytes:
        import fastavro

        buffer = io.BytesIO()
        try:
            read = next(iter(fastavro.json_reader(io.StringIO(json.dumps(value)), self.schema)))
            fastavro.schemaless_writer(buffer, self.schema, read, strict=True)
        except Exception as error:
            raise BadValue(f"the value does not fit its schema: {_reason(error)}") from None
        return buffer.getvalue()

    def decode(self, data: bytes) -> Any:
        import fastavro

        text = io.StringIO()
        try:
            value = fastavro.schemaless_reader(io.BytesIO(data), self.schema, None)
            fastavro.json_writer(text, self.schema, [value])
        except Exception as error:
            raise BadValue(f"the record cannot be read with its schema: {_reason(error)}") from None
        return json.loads(text.getvalue())


class JsonCodec(Codec):
    """JSON, validated against the schema."""

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        import jsonschema_rs

        parse(JSON, text, references)
        known = {name: json.loads(each) for name, each in references.items()}

        def retrieve(uri: str) -> Any:
            name = uri.rpartition("/")[2]
            return known.get(uri) or known[name]

        root = json.loads(text)
        try:
            self._validator = jsonschema_rs.validator_for(root, retriever=retrieve)
        except Exception as error:
            raise InvalidSchema(str(error)) from None
        self.record_name = root.get("title", "") if isinstance(root, dict) else ""

    def encode(self, value: Any) -> bytes:
        self._check(value)
        return json.dumps(value, separators=(",", ":")).encode()

    def decode(self, data: bytes) -> Any:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise BadValue(f"the record is not JSON: {error}") from None
        self._check(value)
        return value

    def _check(self, value: Any) -> None:
        import jsonschema_rs

        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            where = "/".join(map(str, error.instance_path))
            raise BadValue(f"the value does not fit its schema: {error.message} (at /{where})") from None


class ProtobufCodec(Codec):
    """Protobuf; values are in Protobuf's own JSON mapping, and of the first message type when encoding."""

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        parsed: Any = parse("PROTOBUF", text, references)
        self._file = parsed.file
        self._first = next(iter(self._file.message_types_by_name.values()), None)
        if self._first is None:
            raise InvalidSchema("the schema has no message type")
        self.record_name = self._first.full_name

    def encode(self, value: Any) -> bytes:
        from google.protobuf import json_format, message_factory

        message = message_factory.GetMessageClass(self._first)()
        try:
            json_format.ParseDict(value, message, max_recursion_depth=100)
        except (json_format.Error, TypeError, AttributeError, ValueError) as error:
            raise BadValue(f"the value does not fit its schema: {_reason(error)}") from None
        return pack_indexes([0]) + bytes(message.SerializeToString())

    def decode(self, data: bytes) -> Any:
        from google.protobuf import json_format, message_factory
        from google.protobuf.message import DecodeError

        try:
            indexes, rest = unpack_indexes(data)
            message = message_factory.GetMessageClass(self.type_at(indexes)).FromString(rest)
            return json_format.MessageToDict(message, preserving_proto_field_name=True)
        except (NotFramed, DecodeError, IndexError, ValueError) as error:
            raise BadValue(f"the record cannot be read with its schema: {_reason(error)}") from None

    def type_at(self, indexes: list[int]) -> Any:
        """The message type at a path. Raises IndexError."""
        types = list(self._file.message_types_by_name.values())
        found = None
        for index in indexes:
            if not 0 <= index < len(types):
                raise IndexError(f"the schema has no message type {indexes}")
            found = types[index]
            types = list(found.nested_types)
        return found


def _reason(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text if len(text) < 300 else text[:300] + "..."
