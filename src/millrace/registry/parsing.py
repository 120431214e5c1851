"""Schemas of requests and of the store, parsed with everything that they refer to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from millrace.registry import errors
from millrace.registry.names import context_of, in_context
from millrace.registry.records import Json, StoredSchema, fingerprint, references_from_json
from millrace.registry.schemas import AVRO, InvalidSchema, ParsedSchema, Reference, parse
from millrace.registry.state import State

MAX_SCHEMA_BYTES = 1_000_000
LATEST = -1

_CACHED = 500
_MAX_REFERENCES = 1000
# Fields of a request that are not part of the schema.
_ABOUT_REQUEST = frozenset(
    ("schema", "schemaType", "references", "id", "version", "subject", "deleted", "guid", "md5", "timestamp")
)


@dataclass(slots=True)
class NewSchema:
    """A schema as a request gives it, parsed."""

    parsed: ParsedSchema
    text: str
    """The text to store and to compare by."""
    references: tuple[Reference, ...]
    others: Json = field(default_factory=dict)
    id: int | None = None
    version: int | None = None

    @property
    def fingerprint(self) -> bytes:
        return fingerprint(self.parsed.type, self.text, self.references, self.others)

    def is_same_as(self, state: State, stored: StoredSchema) -> bool:
        """Whether a stored schema is this one, however it was laid out by the registry that stored it."""
        if stored.fingerprint == self.fingerprint:
            return True
        has_same_rest = (
            stored.schema_type == self.parsed.type
            and stored.references == self.references
            and stored.others.get("metadata") == self.others.get("metadata")
            and stored.others.get("ruleSet") == self.others.get("ruleSet")
        )
        if not has_same_rest:
            return False
        try:
            return parsed_stored(state, stored).canonical == self.text
        except InvalidSchema:
            return False


def new_schema(state: State, subject: str, body: Json, *, normalize: bool) -> NewSchema:
    """Parse the schema of a request. Raises ApiError."""
    text, schema_type = body.get("schema"), body.get("schemaType") or AVRO
    if not isinstance(text, str):
        raise errors.invalid_schema("the body has no schema; send it as a string")
    if not isinstance(schema_type, str):
        raise errors.invalid_schema("schemaType is not a string")
    if len(text) > MAX_SCHEMA_BYTES:
        raise errors.schema_too_large(len(text), MAX_SCHEMA_BYTES)
    try:
        references = _qualified(state, subject, references_from_json(body.get("references")))
        parsed = _parse(schema_type.upper(), text, resolved(state, references))
    except (InvalidSchema, ValueError) as error:
        raise errors.invalid_schema(str(error)) from None
    return NewSchema(
        parsed=parsed,
        text=parsed.normalized() if normalize else parsed.canonical,
        references=references,
        others={name: each for name, each in body.items() if name not in _ABOUT_REQUEST and each is not None},
        id=_number(body, "id"),
        version=_number(body, "version"),
    )


def _number(body: Json, name: str) -> int | None:
    value = body.get(name)
    if value is None or value in (0, LATEST):
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 31:
        raise errors.invalid_body(f"{name} is not a positive number: {str(value)[:100]}")
    return value


def _qualified(state: State, subject: str, references: Iterable[Reference]) -> tuple[Reference, ...]:
    """References with subjects of the right context, and with a version in place of the latest."""
    context = context_of(subject)
    read = []
    for name, named, version in references:
        full = in_context(named, context)
        if version == LATEST:
            live = state.versions(full)
            version = live[-1].version if live else version
        read.append(Reference(name, full, version))
    return tuple(read)


def resolved(state: State, references: Iterable[Reference]) -> dict[str, str]:
    """The texts of references and of those that they need, each after those that it needs itself.

    Raises InvalidSchema if one does not exist.
    """
    texts: dict[str, str] = {}
    under_way: set[tuple[str, int]] = set()

    def add(reference: Reference) -> None:
        where = (reference.subject, reference.version)
        if reference.name in texts or where in under_way:
            return
        if len(under_way) + len(texts) >= _MAX_REFERENCES:
            raise InvalidSchema(f"the schema needs more than {_MAX_REFERENCES} others")
        stored = state.subjects.get(reference.subject, {}).get(reference.version)
        if stored is None:
            raise InvalidSchema(
                f'No schema reference found for subject "{reference.subject}" and version {reference.version}'
            )
        under_way.add(where)
        for needed in stored.references:
            add(needed)
        under_way.discard(where)
        texts[reference.name] = stored.schema

    for each in references:
        add(each)
    return texts


def parsed_stored(state: State, stored: StoredSchema) -> ParsedSchema:
    """Parse a schema of the store. Raises InvalidSchema."""
    return _parse(stored.schema_type, stored.schema, resolved(state, stored.references))


def _parse(schema_type: str, text: str, references: dict[str, str]) -> ParsedSchema:
    return _parse_cached(schema_type, text, tuple(references.items()))


@lru_cache(_CACHED)
def _parse_cached(schema_type: str, text: str, references: tuple[tuple[str, str], ...]) -> ParsedSchema:
    return parse(schema_type, text, dict(references))


def formatted(state: State, stored: StoredSchema, wanted: str) -> str:
    """The text of a stored schema; `serialized` is the descriptor of a Protobuf schema in base64."""
    if wanted == "serialized" and stored.schema_type == "PROTOBUF":
        parsed: Any = parsed_stored(state, stored)
        return str(parsed.serialized)
    return stored.schema
