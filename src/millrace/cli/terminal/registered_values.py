"""Values with schemas of a registry, as the console tools read and print them: one line of JSON each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from millrace.cli.terminal.errors import CommandError

SUFFIXES = {".avsc": "AVRO", ".avro": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}


def encoder(
    registry: str, topic: str, schema: str | None, schema_type: str | None
) -> Callable[[bytes], bytes]:
    """A function from a line of JSON to a framed record.

    `schema` is a file, a text, or a version of the topic's subject; the latest version if it is left out. A
    file or a text is registered. Raises CommandError.
    """
    from millrace.registry.client import RegistryClient, RegistryError, subject_name
    from millrace.registry.codecs import BadValue, codec
    from millrace.registry.framing import frame
    from millrace.registry.schemas import InvalidSchema

    client, subject = RegistryClient(registry), subject_name(topic, "value")
    try:
        if schema is None or schema == "latest" or schema.isdecimal():
            found = client.version(subject, schema or "latest")
            schema_id, values = found.id, codec(found.type, found.text, found.references)
        else:
            text, kind = _read(schema, schema_type)
            values = codec(kind, text)
            schema_id = client.register(subject, kind, text)
    except RegistryError as error:
        raise CommandError(error.message) from None
    except InvalidSchema as error:
        raise CommandError(f"--schema: {error.message}") from None
    finally:
        client.close()

    def encode(line: bytes) -> bytes:
        try:
            return frame(schema_id, values.encode(json.loads(line)))
        except BadValue as error:
            raise CommandError(str(error)) from None
        except ValueError as error:
            excerpt = line[:100].decode(errors="replace")
            raise CommandError(f"the line is not JSON: {error}: {excerpt}") from None

    return encode


def _read(schema: str, schema_type: str | None) -> tuple[str, str]:
    """The text of a schema and its type, which the name of a file may tell."""
    path = Path(schema)
    if path.suffix in SUFFIXES or ("\n" not in schema and len(schema) < 250 and path.exists()):
        try:
            return path.read_text(encoding="utf-8"), schema_type or SUFFIXES.get(path.suffix, "AVRO")
        except OSError as error:
            raise CommandError(f"cannot read {schema}: {error.strerror}") from error
    return schema, schema_type or ("PROTOBUF" if schema.lstrip().startswith("syntax") else "AVRO")


def decoder(registry: str) -> Callable[[bytes], bytes]:
    """A function from a framed record to a line of JSON."""
    from millrace.registry.client import RegistryClient, RegistryError
    from millrace.registry.codecs import BadValue, codec
    from millrace.registry.framing import NotFramed, unframe
    from millrace.registry.schemas import InvalidSchema

    client = RegistryClient(registry)

    def decode(content: bytes) -> bytes:
        try:
            schema_id, data = unframe(content)
            schema = client.schema(schema_id)
            value = codec(schema.type, schema.text, schema.references).decode(data)
        except (NotFramed, BadValue, InvalidSchema, RegistryError) as error:
            raise CommandError(
                f"a value cannot be printed: {error}; --skip-message-on-error skips it"
            ) from None
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    return decode
