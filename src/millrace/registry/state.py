"""The state of the registry: the records of the log, replayed. Only `replay` changes it."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec

from millrace.registry.names import DEFAULT_CONTEXT, context_of
from millrace.registry.records import Json, StoredSchema

logger = logging.getLogger(__name__)

Versions = dict[int, StoredSchema]


class State:
    """Subjects, ids, configuration and modes. Owned by the event loop; not thread-safe."""

    def __init__(self) -> None:
        self.subjects: dict[str, Versions] = {}
        """Every version of every subject, the deleted ones too, by ascending version."""
        self.configs: dict[str | None, Json] = {}
        """Configuration by subject, by context scope (":.europe:"), and of everything (None)."""
        self.modes: dict[str | None, str] = {}
        self.unreadable = 0
        """The number of records that could not be read."""
        self._by_id: dict[str, dict[int, dict[tuple[str, int], StoredSchema]]] = defaultdict(dict)
        self._by_content: dict[str, dict[bytes, int]] = defaultdict(dict)
        self._by_guid: dict[str, dict[tuple[str, int], StoredSchema]] = defaultdict(dict)
        self._users: dict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
        self._highest_id: dict[str, int] = defaultdict(int)

    # Reading

    def versions(self, subject: str, *, deleted: bool = False) -> list[StoredSchema]:
        """The versions of a subject, oldest first; the deleted ones only if they are wanted."""
        found = self.subjects.get(subject, {}).values()
        return [stored for stored in found if deleted or not stored.deleted]

    def with_id(self, schema_id: int, context: str) -> list[StoredSchema]:
        """The versions that have this id, the deleted ones too."""
        return list(self._by_id[context].get(schema_id, {}).values()) if context in self._by_id else []

    def with_guid(self, guid: str) -> list[StoredSchema]:
        """The versions of all contexts that have this content."""
        return list(self._by_guid[guid].values()) if guid in self._by_guid else []

    def id_of(self, fingerprint: bytes, context: str) -> int | None:
        """The id of a content, if any version has it."""
        return self._by_content[context].get(fingerprint) if context in self._by_content else None

    def next_id(self, context: str) -> int:
        return self._highest_id.get(context, 0) + 1

    def users_of(self, subject: str, version: int) -> list[StoredSchema]:
        """The versions that refer to this one, by id; deleted ones do not count."""
        keys = self._users.get((subject, version), ())
        users = [self.subjects[name][number] for name, number in keys]
        return sorted((user for user in users if not user.deleted), key=lambda user: user.id)

    def contexts(self) -> list[str]:
        """Every context that has subjects, and the default one."""
        return sorted({DEFAULT_CONTEXT, *map(context_of, self.subjects)})

    def all_versions(self) -> Iterator[StoredSchema]:
        """Every version of every subject, by the names of the subjects."""
        for subject in sorted(self.subjects):
            yield from self.subjects[subject].values()

    # Replaying

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        """Apply a record. One that cannot be read is logged and counted, and changes nothing."""
        try:
            read_key = msgspec.json.decode(key or b"")
            read_value = None if value is None else msgspec.json.decode(value)
            self._apply(read_key, read_value)
        except (msgspec.DecodeError, ValueError, KeyError, TypeError, AttributeError) as error:
            self.unreadable += 1
            logger.warning("record of the schema topic skipped: %s; key %.200r", error, key)

    def _apply(self, key: Json, value: Json | None) -> None:
        match key["keytype"]:
            case "SCHEMA":
                self._apply_schema(key["subject"], key["version"], value)
            case "CONFIG":
                self._apply_setting(self.configs, key.get("subject"), value)
            case "MODE":
                self._apply_setting(self.modes, key.get("subject"), None if value is None else value["mode"])
            case "DELETE_SUBJECT" if value is not None:
                for stored in list(self.subjects.get(value["subject"], {}).values()):
                    if stored.version <= value["version"] and not stored.deleted:
                        self._remove(stored)
                        stored.deleted = True
                        self._add(stored)
            case "CLEAR_SUBJECT" if value is not None:
                for stored in list(self.subjects.get(value["subject"], {}).values()):
                    if stored.deleted:
                        self._remove(stored)

    @staticmethod
    def _apply_setting(settings: dict[str | None, Any], subject: str | None, value: Any) -> None:
        if value is None:
            settings.pop(subject or None, None)
        else:
            settings[subject or None] = value

    def _apply_schema(self, subject: str, version: int, value: Json | None) -> None:
        old = self.subjects.get(subject, {}).get(version)
        # A value that cannot be read must not remove the version that is known.
        new = (
            None
            if value is None
            else StoredSchema.from_json({**value, "subject": subject, "version": version})
        )
        if old is not None:
            self._remove(old)
        if new is not None:
            self._add(new)

    def _add(self, stored: StoredSchema) -> None:
        context, where = context_of(stored.subject), (stored.subject, stored.version)
        versions = self.subjects.setdefault(stored.subject, {})
        is_newest = not versions or stored.version > next(reversed(versions))
        versions[stored.version] = stored
        if not is_newest:
            self.subjects[stored.subject] = dict(sorted(versions.items()))
        self._by_id[context].setdefault(stored.id, {})[where] = stored
        self._by_content[context].setdefault(stored.fingerprint, stored.id)
        self._by_guid[stored.guid][where] = stored
        self._highest_id[context] = max(self._highest_id[context], stored.id)
        for reference in stored.references:
            self._users[reference.subject, reference.version].add(where)

    def _remove(self, stored: StoredSchema) -> None:
        context, where = context_of(stored.subject), (stored.subject, stored.version)
        versions = self.subjects[stored.subject]
        del versions[stored.version]
        if not versions:
            del self.subjects[stored.subject]
        same_id = self._by_id[context][stored.id]
        del same_id[where]
        if not same_id:
            del self._by_id[context][stored.id]
            if self._by_content[context].get(stored.fingerprint) == stored.id:
                del self._by_content[context][stored.fingerprint]
        same_guid = self._by_guid[stored.guid]
        same_guid.pop(where, None)
        if not same_guid:
            del self._by_guid[stored.guid]
        for reference in stored.references:
            self._users[reference.subject, reference.version].discard(where)
