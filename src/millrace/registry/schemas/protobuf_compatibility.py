"""Compatibility of Protobuf schemas: why messages of an old schema cannot be read with a new one.

Fields are compared by number. The rules are those of Confluent's registry, which follow Protobuf's own advice
on updating a message type.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from millrace.registry.schemas.protobuf import ProtobufSchema
from millrace.registry.schemas.schema import Problem

# Types whose encodings are interchangeable. An enum is encoded as an int32.
_SCALAR_KINDS = {
    FieldDescriptor.TYPE_INT32: "general number",
    FieldDescriptor.TYPE_INT64: "general number",
    FieldDescriptor.TYPE_UINT32: "general number",
    FieldDescriptor.TYPE_UINT64: "general number",
    FieldDescriptor.TYPE_BOOL: "general number",
    FieldDescriptor.TYPE_ENUM: "general number",
    FieldDescriptor.TYPE_SINT32: "signed number",
    FieldDescriptor.TYPE_SINT64: "signed number",
    FieldDescriptor.TYPE_STRING: "string or bytes",
    FieldDescriptor.TYPE_BYTES: "string or bytes",
    FieldDescriptor.TYPE_FIXED32: "fixed32",
    FieldDescriptor.TYPE_SFIXED32: "fixed32",
    FieldDescriptor.TYPE_FIXED64: "fixed64",
    FieldDescriptor.TYPE_SFIXED64: "fixed64",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_DOUBLE: "double",
}


def problems_reading(new: ProtobufSchema, old: ProtobufSchema) -> list[Problem]:
    """The reasons why a message of the old schema cannot be read with the new one."""
    comparison = _Comparison()
    if old.file.package != new.file.package:
        comparison.add("PACKAGE_CHANGED", "#/", "The package of the schema has changed")
    comparison.compare_types(old.file.message_types_by_name, new.file.message_types_by_name, "#/")
    return comparison.problems


class _Comparison:
    """One comparison. Pairs of messages are compared once, since types may recur."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._seen: set[tuple[str, str]] = set()

    def add(self, kind: str, path: str, text: str) -> None:
        self.problems.append(Problem(kind, path, f"{text} at path '{path}'"))

    def compare_types(self, old: Any, new: Any, path: str) -> None:
        for name, message in old.items():
            if message.GetOptions().map_entry:
                continue
            if name not in new:
                self.add(
                    "MESSAGE_REMOVED", f"{path}{name}", "The new schema lacks a message of the old schema"
                )
            else:
                self.compare_messages(message, new[name], f"{path}{name}")

    def compare_messages(self, old: Descriptor, new: Descriptor, path: str) -> None:
        pair = (old.full_name, new.full_name)
        if pair in self._seen:
            return
        self._seen.add(pair)
        self._oneofs(old, new, path)
        before, after = old.fields_by_number, new.fields_by_number
        for number in sorted({*before, *after}):
            where = f"{path}/{number}"
            if number not in after:
                self._removed(before[number], where)
            elif number not in before:
                if after[number].is_required:
                    self.add("REQUIRED_FIELD_ADDED", where, "The new schema has another required field")
            else:
                self._fields(before[number], after[number], where)
        self.compare_types(old.nested_types_by_name, new.nested_types_by_name, f"{path}/")

    def _removed(self, field: FieldDescriptor, path: str) -> None:
        if field.is_required:
            self.add(
                "REQUIRED_FIELD_REMOVED", path, "The new schema lacks a required field of the old schema"
            )

    def _oneofs(self, old: Descriptor, new: Descriptor, path: str) -> None:
        old_fields = old.fields_by_number
        for oneof in new.oneofs:
            if _is_synthetic(oneof):
                continue
            existing = [old_fields[field.number] for field in oneof.fields if field.number in old_fields]
            moved = [field for field in existing if _oneof(field) is None]
            where = f"{path}/{oneof.name}"
            if len(moved) > 1:
                self.add("MULTIPLE_FIELDS_MOVED_TO_ONEOF", where, "Several fields were moved into one oneof")
            elif moved and len(existing) > 1:
                self.add("FIELD_MOVED_TO_EXISTING_ONEOF", where, "A field was moved into an existing oneof")
        new_oneofs = new.oneofs_by_name
        for oneof in old.oneofs:
            if _is_synthetic(oneof) or oneof.name not in new_oneofs:
                continue
            kept = {field.number for field in new_oneofs[oneof.name].fields}
            for field in oneof.fields:
                if field.number not in kept:
                    where = f"{path}/{oneof.name}/{field.number}"
                    self.add("ONEOF_FIELD_REMOVED", where, "The new schema lacks a field of a oneof")

    def _fields(self, old: FieldDescriptor, new: FieldDescriptor, path: str) -> None:
        if old.is_required != new.is_required:
            kind = "REQUIRED_FIELD_ADDED" if new.is_required else "REQUIRED_FIELD_REMOVED"
            self.add(kind, path, "A field became required, or is no longer required,")
        if _kind(old) != _kind(new):
            self.add("FIELD_KIND_CHANGED", path, f"A {_kind(old)} became a {_kind(new)}")
        elif _kind(old) == "scalar":
            self._scalars(old, new, path)
        elif _kind(old) == "map":
            old_parts, new_parts = old.message_type.fields_by_name, new.message_type.fields_by_name
            self._fields(old_parts["key"], new_parts["key"], f"{path}/key")
            self._fields(old_parts["value"], new_parts["value"], f"{path}/value")
        else:
            self._messages(old, new, path)

    def _scalars(self, old: FieldDescriptor, new: FieldDescriptor, path: str) -> None:
        before, after = _SCALAR_KINDS[old.type], _SCALAR_KINDS[new.type]
        if before != after:
            self.add("FIELD_SCALAR_KIND_CHANGED", path, f"A {before} became a {after}")
        elif old.is_repeated != new.is_repeated and before != "string or bytes":
            # Repeated numbers are packed; a reader of one number does not know them.
            self.add(
                "FIELD_NUMERIC_LABEL_CHANGED", path, "A number became repeated, or is no longer repeated,"
            )

    def _messages(self, old: FieldDescriptor, new: FieldDescriptor, path: str) -> None:
        before, after = old.message_type, new.message_type
        if _local_name(before) != _local_name(after):
            text = f"The type {before.full_name} of a field became {after.full_name}"
            self.add("FIELD_NAMED_TYPE_CHANGED", path, text)
            return
        found = len(self.problems)
        self.compare_messages(before, after, path)
        if len(self.problems) > found:
            self.add(
                "FIELD_NAMED_TYPE_CHANGED", path, f"The type {before.full_name} of a field is incompatible"
            )


def _kind(field: FieldDescriptor) -> str:
    if field.message_type is None:
        return "scalar"
    return "map" if field.message_type.GetOptions().map_entry else "message"


def _local_name(message: Descriptor) -> str:
    name, package = str(message.full_name), message.file.package
    return name.removeprefix(f"{package}.") if package else name


def _is_synthetic(oneof: Any) -> bool:
    """Whether a oneof stands for an optional field of proto3."""
    return len(oneof.fields) == 1 and oneof.name == f"_{oneof.fields[0].name}"


def _oneof(field: FieldDescriptor) -> Any:
    oneof = field.containing_oneof
    return None if oneof is None or _is_synthetic(oneof) else oneof
