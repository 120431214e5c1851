"""Records of the `_schemas` topic in Confluent's format, so that either registry can take over.

Keys and values are JSON. Fields that this registry does not know are kept: a value is carried as it was read.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from millrace.registry.schemas import AVRO, Reference

Json = dict[str, Any]


class Record(NamedTuple):
    """A record to write; no value deletes the key."""

    key: Json
    value: Json | None

    def encoded(self) -> tuple[bytes, bytes | None]:
        value = None if self.value is None else msgspec.json.encode(self.value)
        return msgspec.json.encode(self.key), value


@dataclass(slots=True)
class StoredSchema:
    """A version of a subject."""

    subject: str
    version: int
    id: int
    schema: str
    schema_type: str = AVRO
    references: tuple[Reference, ...] = ()
    deleted: bool = False
    others: Json = field(default_factory=dict)
    """Every other field, such as `metadata` and `ruleSet`."""

    @property
    def guid(self) -> str:
        """An id that depends on the content alone."""
        return str(uuid.UUID(bytes=self.fingerprint))

    @property
    def fingerprint(self) -> bytes:
        return fingerprint(self.schema_type, self.schema, self.references, self.others)

    @classmethod
    def from_json(cls, value: Json) -> StoredSchema:
        """Read the value of a SCHEMA record. Raises ValueError if a field is missing or of a wrong type."""
        others = {name: each for name, each in value.items() if name not in _OWN}
        stored = cls(
            subject=value["subject"],
            version=value["version"],
            id=value["id"],
            schema=value["schema"],
            schema_type=value.get("schemaType") or AVRO,
            references=references_from_json(value.get("references")),
            deleted=bool(value.get("deleted", False)),
            others=others,
        )
        if not (isinstance(stored.schema, str) and isinstance(stored.subject, str)):
            raise ValueError("subject and schema are not strings")
        if not (isinstance(stored.version, int) and isinstance(stored.id, int)):
            raise ValueError("version and id are not numbers")
        return stored

    def to_json(self) -> Json:
        """The value of the SCHEMA record."""
        written: Json = {"subject": self.subject, "version": self.version, "id": self.id}
        if self.schema_type != AVRO:
            written["schemaType"] = self.schema_type
        if self.references:
            written["references"] = [each.to_json() for each in self.references]
        return {**written, **self.others, "schema": self.schema, "deleted": self.deleted}

    def record(self) -> Record:
        return Record(schema_key(self.subject, self.version), self.to_json())


# The fields of a SCHEMA value that have a place of their own here. Others pass through untouched.
_OWN = frozenset(("subject", "version", "id", "schema", "schemaType", "references", "deleted", "guid", "md5"))


def references_from_json(value: Any) -> tuple[Reference, ...]:
    """Read a list of references. Raises ValueError."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ValueError("references are not a list")
    read = []
    for each in value:
        if not isinstance(each, dict):
            raise ValueError("a reference is not an object")
        reference = Reference(each.get("name", ""), each.get("subject", ""), each.get("version", -1))
        is_valid = isinstance(reference.name, str) and isinstance(reference.subject, str)
        if not is_valid or not reference.name or not reference.subject:
            raise ValueError("a reference needs a name, a subject and a version")
        if not isinstance(reference.version, int) or isinstance(reference.version, bool):
            raise ValueError("the version of a reference is a number")
        read.append(reference)
    return tuple(read)


def fingerprint(schema_type: str, schema: str, references: tuple[Reference, ...], others: Json) -> bytes:
    """The MD5 of a schema's content; schemas with the same one have the same id."""
    parts: list[Any] = [schema_type, schema, [each.to_json() for each in references]]
    # Metadata and rules are part of a schema: with others, it is another one.
    parts += [others.get("metadata"), others.get("ruleSet")]
    return hashlib.md5(msgspec.json.encode(parts), usedforsecurity=False).digest()


def schema_key(subject: str, version: int) -> Json:
    return {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}


def config_key(subject: str | None) -> Json:
    return {"keytype": "CONFIG", "subject": subject, "magic": 0}


def mode_key(subject: str | None) -> Json:
    return {"keytype": "MODE", "subject": subject, "magic": 0}


def delete_subject(subject: str, version: int) -> Record:
    """Delete every version of a subject up to this one, softly."""
    key = {"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0}
    return Record(key, {"subject": subject, "version": version})


def noop() -> Record:
    """A record without meaning; reading it proves that all records before it are read."""
    return Record({"keytype": "NOOP", "magic": 0}, None)
