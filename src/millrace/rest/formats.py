"""Formats of records in requests: binary, JSON, text, and those of the schema registry."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from millrace.registry.client import RegistryClient, RegistryError, subject_name
from millrace.registry.codecs import BadValue, codec
from millrace.registry.framing import NotFramed, frame, unframe
from millrace.registry.schemas import AVRO, JSON, PROTOBUF, InvalidSchema
from millrace.rest.errors import error

BINARY, PLAIN_JSON, TEXT = "binary", "json", "string"
# The names of formats in content types and consumer settings, with the schema type of each.
SCHEMA_TYPES = {"avro": AVRO, "jsonschema": JSON, "protobuf": PROTOBUF}
FORMATS = (BINARY, PLAIN_JSON, *SCHEMA_TYPES)

Encode = Callable[[Any], bytes | None]


class WithSchema(NamedTuple):
    """The schema of the keys or values of a request, and the function that encodes them."""

    encode: Encode
    schema_id: int | None = None


def encode_binary(value: Any) -> bytes | None:
    if value is None:
        return None
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise BadValue("the value is not base64") from None


def encode_json(value: Any) -> bytes | None:
    return None if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def encode_text(value: Any) -> bytes | None:
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    raise BadValue("the value is not a string")


PLAIN: dict[str, Encode] = {BINARY: encode_binary, PLAIN_JSON: encode_json, TEXT: encode_text}


class SchemaFormats:
    """Encodes and decodes with schemas of the registry. Blocking: for threads."""

    def __init__(self, url: str | None) -> None:
        self._url = url
        self._client: RegistryClient | None = None

    @property
    def client(self) -> RegistryClient:
        if self._url is None:
            raise error(50101, "this proxy has no schema registry; start it with --registry URL")
        if self._client is None:
            self._client = RegistryClient(self._url)
        return self._client

    def by_id(self, schema_type: str | None, schema_id: int) -> WithSchema:
        """Encode with a registered schema. Raises ApiError."""
        try:
            schema = self.client.schema(schema_id)
        except RegistryError as failure:
            raise error(42205 if failure.status == 404 else 50002, failure.message) from None
        if schema_type is not None and schema.type != schema_type:
            raise error(42205, f"schema {schema_id} is of type {schema.type}, not {schema_type}")
        return _with_schema(schema_id, schema.type, schema.text, dict(schema.references))

    def by_text(
        self, schema_type: str, text: str, topic: str, part: str, subject: str | None = None
    ) -> WithSchema:
        """Register a schema under the name of the topic, and encode with it. Raises ApiError."""
        try:
            parsed = codec(schema_type, text)
            name = subject or subject_name(topic, part, parsed.record_name)
            schema_id = self.client.register(name, schema_type, text)
        except InvalidSchema as failure:
            raise error(42205, f"Invalid schema: {failure.message}") from None
        except RegistryError as failure:
            raise error(40801 if failure.status == 409 else 42205, failure.message) from None
        return _with_schema(schema_id, schema_type, text, {})

    def by_version(self, subject: str, version: int | str) -> WithSchema:
        """Encode with a version of a subject. Raises ApiError."""
        try:
            schema = self.client.version(subject, version)
        except RegistryError as failure:
            raise error(42205 if failure.status == 404 else 50002, failure.message) from None
        return _with_schema(schema.id, schema.type, schema.text, dict(schema.references))

    def decode(self, schema_type: str, record: bytes | None) -> Any:
        """The value of a framed record. Raises ApiError."""
        if record is None:
            return None
        try:
            schema_id, data = unframe(record)
            schema = self.client.schema(schema_id)
            if schema.type != schema_type:
                raise BadValue(f"the record is of type {schema.type}, not {schema_type}")
            return codec(schema.type, schema.text, schema.references).decode(data)
        except (NotFramed, BadValue, InvalidSchema) as failure:
            raise error(42203, f"a record cannot be converted: {failure}") from None
        except RegistryError as failure:
            raise error(42203, f"a record cannot be converted: {failure.message}") from None


def _with_schema(schema_id: int, schema_type: str, text: str, references: dict[str, str]) -> WithSchema:
    try:
        found = codec(schema_type, text, references)
    except InvalidSchema as failure:
        raise error(42205, f"Invalid schema: {failure.message}") from None

    def encode(value: Any) -> bytes | None:
        return None if value is None else frame(schema_id, found.encode(value))

    return WithSchema(encode, schema_id)


def decode_plain(name: str, value: bytes | None) -> Any:
    """A record in the binary or JSON format. Raises ApiError."""
    if value is None:
        return None
    if name == BINARY:
        return base64.b64encode(value).decode()
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise error(42203, "a record cannot be converted: it is not JSON") from None
