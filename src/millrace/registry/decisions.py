"""Decisions about writes: each reads the state and returns the records to write, or raises an ApiError."""

from __future__ import annotations

from typing import Any

from millrace.registry import errors, settings
from millrace.registry.names import context_of, is_valid
from millrace.registry.parsing import NewSchema, parsed_stored
from millrace.registry.records import Record, StoredSchema, config_key, delete_subject, mode_key, schema_key
from millrace.registry.schemas import InvalidSchema
from millrace.registry.schemas.levels import Earlier, Level, incompatibilities
from millrace.registry.state import State


def registered(state: State, subject: str, new: NewSchema) -> StoredSchema | None:
    """The live version of a subject that has this schema already."""
    for stored in reversed(state.versions(subject)):
        if new.is_same_as(state, stored) and new.id in (None, stored.id):
            return stored
    return None


def register(state: State, subject: str, new: NewSchema) -> tuple[list[Record], StoredSchema]:
    """Register a schema as the next version of a subject, under the id of its content."""
    if not is_valid(subject):
        raise errors.invalid_subject(subject)
    settings.require_writable(state, subject)
    existing = registered(state, subject, new)
    if existing is not None:
        return [], existing
    context, importing = context_of(subject), settings.mode_of(state, subject) == "IMPORT"
    every = state.versions(subject, deleted=True)
    following = every[-1].version + 1 if every else 1
    if importing:
        _require_importable(state, subject, new)
    else:
        if new.id is not None:
            raise errors.not_permitted(f"Subject {subject} is not in import mode")
        if new.version not in (None, following):
            raise errors.invalid_schema("Version is not one more than previous version")
        reasons = incompatible_with_history(state, subject, new, settings.level_of(state, subject))
        if reasons:
            raise errors.incompatible(subject, reasons)
    schema_id = new.id or state.id_of(new.fingerprint, context) or state.next_id(context)
    stored = StoredSchema(
        subject=subject,
        version=new.version or following,
        id=schema_id,
        schema=new.text,
        schema_type=new.parsed.type,
        references=new.references,
        others=new.others,
    )
    return [stored.record()], stored


def _require_importable(state: State, subject: str, new: NewSchema) -> None:
    if new.id is not None:
        same_id = state.with_id(new.id, context_of(subject))
        if same_id and not new.is_same_as(state, same_id[0]):
            raise errors.id_mismatch(new.id)
    if new.version is not None and new.version in state.subjects.get(subject, {}):
        raise errors.not_permitted(f"Subject {subject} has version {new.version} already")


def incompatible_with_history(state: State, subject: str, new: NewSchema, level: Level) -> list[str]:
    """The reasons why a schema may not follow the versions of its subject."""
    group = settings.config_of(state, subject).get("compatibilityGroup")
    earlier = []
    for stored in state.versions(subject):
        if group and _property(stored.others, group) != _property(new.others, group):
            continue
        # One that cannot be parsed, stored by another registry, must not block its subject.
        try:
            earlier.append(Earlier(stored.version, parsed_stored(state, stored)))
        except InvalidSchema:
            continue
    return compare(new, earlier, level)


def compare(new: NewSchema, earlier: list[Earlier], level: Level) -> list[str]:
    """The reasons why a schema may not follow these versions."""
    try:
        return incompatibilities(new.parsed, earlier, level)
    except InvalidSchema as error:
        raise errors.invalid_schema(error.message) from None
    except RecursionError:
        raise errors.invalid_schema("the schema is nested too deeply") from None


def _property(others: dict[str, Any], name: str) -> Any:
    metadata = others.get("metadata")
    properties = metadata.get("properties") if isinstance(metadata, dict) else None
    return properties.get(name) if isinstance(properties, dict) else None


def remove_version(
    state: State, subject: str, stored: StoredSchema, *, permanent: bool
) -> tuple[list[Record], int]:
    """Delete a version, softly at first."""
    settings.require_writable(state, subject)
    if stored.deleted and not permanent:
        raise errors.version_soft_deleted(subject, stored.version)
    if permanent and not stored.deleted:
        raise errors.version_not_soft_deleted(subject, stored.version)
    _require_unused(state, stored)
    if permanent:
        return [Record(schema_key(subject, stored.version), None)], stored.version
    record = Record(schema_key(subject, stored.version), {**stored.to_json(), "deleted": True})
    rest = [each for each in state.versions(subject) if each.version != stored.version]
    return [record, *([] if rest else _forget_settings(state, subject))], stored.version


def remove_subject(state: State, subject: str, *, permanent: bool) -> tuple[list[Record], list[int]]:
    """Delete every version of a subject, softly at first."""
    every, live = state.versions(subject, deleted=True), state.versions(subject)
    if not every:
        raise errors.subject_not_found(subject)
    settings.require_writable(state, subject)
    if not permanent and not live:
        raise errors.subject_soft_deleted(subject)
    if permanent and live:
        raise errors.subject_not_soft_deleted(subject)
    removed = every if permanent else live
    for stored in removed:
        _require_unused(state, stored)
    numbers = [stored.version for stored in removed]
    if permanent:
        return [Record(schema_key(subject, number), None) for number in numbers], numbers
    return [delete_subject(subject, numbers[-1]), *_forget_settings(state, subject)], numbers


def _require_unused(state: State, stored: StoredSchema) -> None:
    users = state.users_of(stored.subject, stored.version)
    if users:
        raise errors.reference_exists(stored.subject, stored.version, [user.id for user in users])


def _forget_settings(state: State, subject: str) -> list[Record]:
    """A subject that is created again starts without the settings of the deleted one."""
    records = []
    if subject in state.configs:
        records.append(Record(config_key(subject), None))
    if subject in state.modes:
        records.append(Record(mode_key(subject), None))
    return records
