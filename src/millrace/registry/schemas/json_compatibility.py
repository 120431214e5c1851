"""Compatibility of JSON Schemas: why documents of an old schema may not be valid under a new one.

The kinds of differences, and which of them are compatible, are those of Confluent's registry. A schema that
was the combination of others may also become a simple one, if the simple one accepts the same documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

from millrace.registry.schemas.json_schema import JsonSchema, Node, modelled
from millrace.registry.schemas.schema import Problem


def problems_reading(new: JsonSchema, old: JsonSchema) -> list[Problem]:
    """The reasons why documents that are valid under `old` may be invalid under `new`."""
    comparison = _Comparison(old, new)
    comparison.compare(old.node(old.root, old.root), new.node(new.root, new.root))
    return comparison.problems


class _Comparison:
    """One comparison: the path so far, the problems so far, and the pairs that are being compared."""

    def __init__(self, old: JsonSchema, new: JsonSchema) -> None:
        self.problems: list[Problem] = []
        self._old, self._new = old, new
        self._path: list[str] = []
        self._under_way: set[tuple[int, int]] = set()

    # Both sides

    def compare(self, old: Node, new: Node) -> None:
        pair = (id(old.schema), id(new.schema))
        if old.kind != "combined" and new.kind != "combined" and old.schema and new.schema:
            if pair in self._under_way:
                return
            self._under_way.add(pair)
        else:
            pair = (0, 0)
        try:
            self._compare(old, new)
        finally:
            self._under_way.discard(pair)

    def _compare(self, old: Node, new: Node) -> None:
        if old.kind == "false" or new.kind == "empty":
            return
        if old.kind != new.kind:
            self._different_kinds(old, new)
        elif old.kind == "combined":
            self._combined(old, new)
        else:
            of_kind = getattr(self, f"_{old.kind}", None)
            if of_kind is not None:
                of_kind(old, new)

    def _different_kinds(self, old: Node, new: Node) -> None:
        if new.kind == "combined":
            branches = [modelled(self._new, *part) for part in new.parts]
            fits = [self._is_compatible(old, branch) for branch in branches]
            # All of them have to accept the document, or one of them.
            if all(fits) if new.combiner == "allOf" else any(fits):
                return
        elif old.kind == "combined":
            branches = [modelled(self._old, *part) for part in old.parts]
            fits = [self._is_compatible(branch, new) for branch in branches]
            if any(fits) if old.combiner == "allOf" else all(fits):
                return
        self._add("TYPE_CHANGED")

    def _is_compatible(self, old: Node, new: Node) -> bool:
        found, self.problems = self.problems, []
        self.compare(old, new)
        is_compatible = not self.problems
        self.problems = found
        return is_compatible

    def _add(self, kind: str, *path: str) -> None:
        where = "#/" + "/".join((*self._path, *path))
        self.problems.append(Problem(kind, where, f"{_sentence(kind)} at path '{where}'"))

    @contextmanager
    def _at(self, *path: str) -> Iterator[None]:
        self._path += path
        try:
            yield
        finally:
            del self._path[-len(path) :]

    def _old_node(self, schema: Any, of: Node) -> Node:
        return self._old.node(schema, of.document)

    def _new_node(self, schema: Any, of: Node) -> Node:
        return self._new.node(schema, of.document)

    # Combinations

    def _combined(self, old: Node, new: Node) -> None:
        old_parts = [modelled(self._old, *part) for part in old.parts]
        new_parts = [modelled(self._new, *part) for part in new.parts]
        if old.combiner != new.combiner and not (
            new.combiner == "anyOf"
            or (len(old_parts) == 1 and (new.combiner == "oneOf" or len(new_parts) == 1))
        ):
            self._add("COMBINED_TYPE_CHANGED")
            return
        if new.combiner == "allOf" and len(old_parts) < len(new_parts):
            self._add("PRODUCT_TYPE_EXTENDED")
        elif new.combiner != "allOf" and len(old_parts) > len(new_parts):
            self._add("SUM_TYPE_NARROWED")
        fits = []
        for index, old_part in enumerate(old_parts):
            with self._at(old.combiner, str(index)):
                fits.append([self._is_compatible(old_part, new_part) for new_part in new_parts])
        if _matched(fits) < min(len(old_parts), len(new_parts)):
            if len(old_parts) == len(new_parts):
                self._explain_parts(old, old_parts, new_parts, fits)
            self._add("COMBINED_TYPE_SUBSCHEMAS_CHANGED")

    def _explain_parts(
        self, old: Node, old_parts: list[Node], new_parts: list[Node], fits: list[list[bool]]
    ) -> None:
        """Report why a part no longer accepts its documents, if it has one counterpart only."""
        for index, row in enumerate(fits):
            if not any(row):
                with self._at(old.combiner, str(index)):
                    self.compare(old_parts[index], new_parts[index])

    def _not(self, old: Node, new: Node) -> None:
        # Whatever the new one rejects, the old one has to reject.
        with self._at("not"):
            swapped = _Comparison(self._new, self._old)
            swapped.compare(
                self._new_node(new.schema["not"], new),
                self._old_node(old.schema["not"], old),
            )
            if swapped.problems:
                self._add("NOT_TYPE_EXTENDED")

    def _condition(self, old: Node, new: Node) -> None:
        for word in ("if", "then", "else"):
            if old.schema.get(word) != new.schema.get(word):
                self._add("CONDITION_CHANGED", word)

    # Simple types

    def _enum(self, old: Node, new: Node) -> None:
        allowed = [_comparable(value) for value in _values(new.schema)]
        if any(_comparable(value) not in allowed for value in _values(old.schema)):
            kept = any(_comparable(value) in allowed for value in _values(old.schema))
            self._add("ENUM_ARRAY_NARROWED" if kept else "ENUM_ARRAY_CHANGED", "enum")

    def _string(self, old: Node, new: Node) -> None:
        self._upper_limit(old, new, "maxLength", "MAX_LENGTH")
        self._lower_limit(old, new, "minLength", "MIN_LENGTH")
        pattern = new.schema.get("pattern")
        if pattern is not None and pattern != old.schema.get("pattern"):
            self._add("PATTERN_CHANGED" if "pattern" in old.schema else "PATTERN_ADDED", "pattern")

    def _number(self, old: Node, new: Node) -> None:
        for word, name in (("maximum", "MAXIMUM"), ("exclusiveMaximum", "EXCLUSIVE_MAXIMUM")):
            self._limit(_limit_of(old.schema, word), _limit_of(new.schema, word), word, name, is_upper=True)
        for word, name in (("minimum", "MINIMUM"), ("exclusiveMinimum", "EXCLUSIVE_MINIMUM")):
            self._limit(_limit_of(old.schema, word), _limit_of(new.schema, word), word, name, is_upper=False)
        self._multiple(old.schema.get("multipleOf"), new.schema.get("multipleOf"))
        if _is_integer(new.schema) and not _is_integer(old.schema):
            self._add("TYPE_NARROWED")

    def _multiple(self, old: Any, new: Any) -> None:
        if new is None or old == new:
            return
        if old is None:
            self._add("MULTIPLE_OF_ADDED", "multipleOf")
            return
        ours, theirs = Decimal(str(old)), Decimal(str(new))
        if ours % theirs != 0:
            kind = "MULTIPLE_OF_EXPANDED" if theirs % ours == 0 else "MULTIPLE_OF_CHANGED"
            self._add(kind, "multipleOf")

    def _upper_limit(self, old: Node, new: Node, word: str, name: str) -> None:
        self._limit(old.schema.get(word), new.schema.get(word), word, name, is_upper=True)

    def _lower_limit(self, old: Node, new: Node, word: str, name: str) -> None:
        self._limit(old.schema.get(word), new.schema.get(word), word, name, is_upper=False)

    def _limit(self, old: Any, new: Any, word: str, name: str, *, is_upper: bool) -> None:
        if new is None or old == new:
            return
        if old is None:
            self._add(f"{name}_ADDED", word)
        elif is_upper and new < old:
            self._add(f"{name}_DECREASED", word)
        elif not is_upper and new > old:
            self._add(f"{name}_INCREASED", word)

    # Objects

    def _object(self, old: Node, new: Node) -> None:
        self._required(old, new)
        self._properties(old, new)
        self._dependencies(old, new)
        self._additional(old, new, "additionalProperties", "ADDITIONAL_PROPERTIES")
        self._upper_limit(old, new, "maxProperties", "MAX_PROPERTIES")
        self._lower_limit(old, new, "minProperties", "MIN_PROPERTIES")

    def _required(self, old: Node, new: Node) -> None:
        properties, before, after = _properties(new), _required(old), _required(new)
        for name in _properties(old):
            if (
                name in properties
                and name in after
                and name not in before
                and not _has_default(properties[name])
            ):
                self._add("REQUIRED_ATTRIBUTE_ADDED", "required", name)

    def _properties(self, old: Node, new: Node) -> None:
        before, after = _properties(old), _properties(new)
        for name in dict.fromkeys((*before, *after)):
            with self._at("properties", name):
                if name not in after:
                    self._property_removed(name, self._old_node(before[name], old), new)
                elif name not in before:
                    self._property_added(name, old, self._new_node(after[name], new), new)
                else:
                    self.compare(self._old_node(before[name], old), self._new_node(after[name], new))

    def _property_removed(self, name: str, removed: Node, new: Node) -> None:
        if _is_open(new.schema):
            return
        covering = _covering(new.schema, name)
        if covering is not None:
            if not self._is_compatible(removed, self._new_node(covering, new)):
                self._add("PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")
        elif removed.kind != "false":
            self._add("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL")

    def _property_added(self, name: str, old: Node, added: Node, new: Node) -> None:
        if _is_open(old.schema):
            if added.kind != "empty":
                self._add("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL")
            return
        covering = _covering(old.schema, name)
        if covering is not None and not self._is_compatible(self._old_node(covering, old), added):
            self._add("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")
        if name in _required(new) and not _has_default(_properties(new)[name]):
            self._add("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL")

    def _dependencies(self, old: Node, new: Node) -> None:
        before, after = _dependencies(old.schema), _dependencies(new.schema)
        for name, dependency in after.items():
            with self._at("dependencies", name):
                previous = before.get(name)
                if isinstance(dependency, list):
                    self._dependency_list(previous, dependency)
                elif previous is None or isinstance(previous, list):
                    self._add("DEPENDENCY_SCHEMA_ADDED")
                else:
                    self.compare(self._old_node(previous, old), self._new_node(dependency, new))

    def _dependency_list(self, old: Any, new: list[Any]) -> None:
        if not isinstance(old, list):
            self._add("DEPENDENCY_ARRAY_ADDED")
        elif not set(new) <= set(old):
            self._add("DEPENDENCY_ARRAY_EXTENDED" if set(new) >= set(old) else "DEPENDENCY_ARRAY_CHANGED")

    def _additional(self, old: Node, new: Node, word: str, name: str) -> None:
        before, after = _additional(old.schema, word), _additional(new.schema, word)
        with self._at(word):
            if after is False and before is not False:
                self._add(f"{name}_REMOVED")
            elif isinstance(after, Mapping) and before is True:
                self._add(f"{name}_NARROWED")
            elif isinstance(after, Mapping) and isinstance(before, Mapping):
                self.compare(self._old_node(before, old), self._new_node(after, new))

    # Arrays

    def _array(self, old: Node, new: Node) -> None:
        before, after = _items(old.schema), _items(new.schema)
        if after is not None:
            with self._at("items"):
                if before is None:
                    self._add("SCHEMA_ADDED")
                else:
                    self.compare(self._old_node(before, old), self._new_node(after, new))
        self._tuple(old, new)
        self._additional(old, new, "additionalItems", "ADDITIONAL_ITEMS")
        self._upper_limit(old, new, "maxItems", "MAX_ITEMS")
        self._lower_limit(old, new, "minItems", "MIN_ITEMS")
        if new.schema.get("uniqueItems") and not old.schema.get("uniqueItems"):
            self._add("UNIQUE_ITEMS_ADDED", "uniqueItems")

    def _tuple(self, old: Node, new: Node) -> None:
        before, after = _tuple(old.schema), _tuple(new.schema)
        for index in range(max(len(before), len(after))):
            with self._at("items", str(index)):
                if index >= len(after):
                    self._item_removed(self._old_node(before[index], old), new)
                elif index >= len(before):
                    self._item_added(old, self._new_node(after[index], new))
                else:
                    self.compare(self._old_node(before[index], old), self._new_node(after[index], new))

    def _item_removed(self, removed: Node, new: Node) -> None:
        additional = _additional(new.schema, "additionalItems")
        if isinstance(additional, Mapping):
            if not self._is_compatible(removed, self._new_node(additional, new)):
                self._add("ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")
        elif additional is False and removed.kind != "false":
            self._add("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL")

    def _item_added(self, old: Node, added: Node) -> None:
        additional = _additional(old.schema, "additionalItems")
        if isinstance(additional, Mapping):
            if not self._is_compatible(self._old_node(additional, old), added):
                self._add("ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")
        elif additional is True and added.kind != "empty":
            self._add("ITEM_ADDED_TO_OPEN_CONTENT_MODEL")


def _sentence(kind: str) -> str:
    """A kind of difference in words: `MAX_LENGTH_DECREASED` is "The new schema: max length decreased"."""
    return f"The new schema is not compatible: {kind.replace('_', ' ').lower()}"


def _values(schema: Mapping[str, Any]) -> list[Any]:
    found = schema["enum"] if isinstance(schema.get("enum"), list) else [schema.get("const")]
    return list(found)


def _comparable(value: Any) -> Any:
    """A value for comparison: 1, 1.0 and true are three values in Python's eyes only if they carry types."""
    return (isinstance(value, bool), value)


def _is_integer(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") in ("integer", ["integer"])


def _limit_of(schema: Mapping[str, Any], word: str) -> Any:
    """A limit; in draft 4, `exclusiveMaximum: true` makes the maximum itself exclusive."""
    value = schema.get(word)
    if word.startswith("exclusive"):
        plain = word.removeprefix("exclusive").lower()
        return schema.get(plain) if value is True else None if value is False else value
    exclusive = schema.get("exclusive" + word.capitalize())
    return None if exclusive is True else value


def _properties(node: Node) -> Mapping[str, Any]:
    found = node.schema.get("properties")
    return found if isinstance(found, Mapping) else {}


def _required(node: Node) -> list[Any]:
    found = node.schema.get("required")
    return found if isinstance(found, list) else []


def _has_default(schema: Any) -> bool:
    return isinstance(schema, Mapping) and "default" in schema


def _dependencies(schema: Mapping[str, Any]) -> dict[str, Any]:
    words = ("dependencies", "dependentRequired", "dependentSchemas")
    return {name: each for word in words for name, each in (schema.get(word) or {}).items()}


def _additional(schema: Mapping[str, Any], word: str) -> Any:
    """True, False or a schema. From draft 2020-12 on, `items` is about those after `prefixItems`."""
    if word == "additionalItems" and "prefixItems" in schema:
        word = "items"
    found = schema.get(word, True)
    return True if found == {} else found


def _is_open(schema: Mapping[str, Any]) -> bool:
    """Whether an object may have properties that the schema does not mention."""
    return not schema.get("patternProperties") and _additional(schema, "additionalProperties") is True


def _covering(schema: Mapping[str, Any], name: str) -> Any:
    """The schema of a property that is not mentioned by its name; None if there may be none."""
    for pattern, covering in (schema.get("patternProperties") or {}).items():
        try:
            if re.search(pattern, name):
                return covering
        except re.error:
            continue
    additional = _additional(schema, "additionalProperties")
    return additional if isinstance(additional, Mapping) else None


def _items(schema: Mapping[str, Any]) -> Any:
    """The schema of every item, if the array is not a tuple."""
    found = schema.get("items")
    return None if isinstance(found, list) or "prefixItems" in schema or found is True else found


def _tuple(schema: Mapping[str, Any]) -> list[Any]:
    found = schema.get("prefixItems", schema.get("items"))
    return found if isinstance(found, list) else []


def _matched(fits: list[list[bool]]) -> int:
    """The size of the largest matching of rows to columns that fit."""
    row_of: dict[int, int] = {}

    def place(row: int, tried: set[int]) -> bool:
        for column, fit in enumerate(fits[row]):
            if fit and column not in tried:
                tried.add(column)
                if column not in row_of or place(row_of[column], tried):
                    row_of[column] = row
                    return True
        return False

    return sum(place(row, set()) for row in range(len(fits)))
