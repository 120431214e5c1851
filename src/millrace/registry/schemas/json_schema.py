"""JSON Schema: parsing, references, and a model of a schema as the sum or product of simple ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import unquote, urljoin

from millrace.registry.schemas.schema import InvalidSchema, ParsedSchema, Problem

Kind = Literal[
    "empty",
    "false",
    "string",
    "number",
    "boolean",
    "null",
    "object",
    "array",
    "enum",
    "not",
    "combined",
    "condition",
]

COMBINERS = ("allOf", "anyOf", "oneOf")

# A schema without a type is of the type that its keywords are about.
_KEYWORDS: dict[Kind, frozenset[str]] = {
    "object": frozenset(
        (
            *("properties", "required", "additionalProperties", "minProperties", "maxProperties"),
            *("dependencies", "dependentRequired", "dependentSchemas", "patternProperties"),
            *("propertyNames", "unevaluatedProperties"),
        )
    ),
    "array": frozenset(
        (
            *("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems"),
            *("contains", "minContains", "maxContains", "unevaluatedItems"),
        )
    ),
    "number": frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
    "string": frozenset(("minLength", "maxLength", "pattern")),
}
_TYPES: dict[str, Kind] = {
    "string": "string",
    "number": "number",
    "integer": "number",
    "boolean": "boolean",
    "null": "null",
    "object": "object",
    "array": "array",
}
_MAX_REFERENCES = 100


@dataclass(slots=True)
class Node:
    """A schema as the comparison sees it: of one kind, or a combination of nodes."""

    kind: Kind
    schema: Mapping[str, Any]
    document: Any
    """The document that relative references are about."""
    combiner: str = ""
    parts: list[tuple[Any, Any]] = field(default_factory=list)
    """A combination's schemas, each with its document."""


class JsonSchema(ParsedSchema):
    """A JSON Schema and the documents that it refers to."""

    type = "JSON"

    def __init__(self, root: Any, references: Mapping[str, Any]) -> None:
        self.root = root
        self.canonical = json.dumps(root, separators=(",", ":"), ensure_ascii=False)
        self._documents = dict(references)
        for document in (*references.values(), root):
            identifier = _identifier(document)
            if identifier:
                self._documents.setdefault(identifier, document)

    def normalized(self) -> str:
        return json.dumps(_sorted(self.root), separators=(",", ":"), ensure_ascii=False)

    def problems_reading(self, written: ParsedSchema) -> list[Problem]:
        from millrace.registry.schemas.json_compatibility import problems_reading

        assert isinstance(written, JsonSchema)
        return problems_reading(self, written)

    def node(self, schema: Any, document: Any) -> Node:
        """The model of a part of this schema."""
        schema, document = self._dereferenced(schema, document)
        if schema is False:
            return Node("false", {}, document)
        if not isinstance(schema, Mapping) or not schema:
            return Node("empty", {}, document)
        types = schema.get("type")
        if isinstance(types, list) and len(types) > 1:
            each = [({**schema, "type": name}, document) for name in types]
            return Node("combined", schema, document, "anyOf", each)
        parts = _parts(schema, document)
        if not parts:
            return Node("empty", schema, document)
        if len(parts) == 1:
            return parts[0]
        return Node("combined", schema, document, "allOf", [(_Part(part), document) for part in parts])

    def _dereferenced(self, schema: Any, document: Any) -> tuple[Any, Any]:
        for _ in range(_MAX_REFERENCES):
            if not isinstance(schema, Mapping) or not isinstance(schema.get("$ref"), str):
                return schema, document
            schema, document = self.resolve(schema["$ref"], document)
        raise InvalidSchema("a reference leads to itself")

    def resolve(self, reference: str, document: Any) -> tuple[Any, Any]:
        """The schema that a reference means, and its document. Raises InvalidSchema."""
        name, _, fragment = reference.partition("#")
        if name:
            base = _identifier(document)
            candidates = (name, urljoin(base, name) if base else name, name.rpartition("/")[2])
            found = next((each for each in candidates if each in self._documents), None)
            if found is None:
                raise InvalidSchema(f"the schema refers to {name}, which is not among its references")
            document = self._documents[found]
        return _at(document, unquote(fragment), reference), document


class _Part(dict[str, Any]):
    """A part of a combination that is modelled already."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node


def modelled(schema: JsonSchema, part: Any, document: Any) -> Node:
    """The node of a combination's part."""
    return part.node if isinstance(part, _Part) else schema.node(part, document)


def _parts(schema: Mapping[str, Any], document: Any) -> list[Node]:
    parts = []
    name = schema.get("type")
    name = name[0] if isinstance(name, list) and name else name
    if isinstance(name, str) and name in _TYPES:
        parts.append(Node(_TYPES[name], schema, document))
    else:
        kinds = [kind for kind, words in _KEYWORDS.items() if not words.isdisjoint(schema)]
        parts += [Node(kind, schema, document) for kind in kinds]
    if "enum" in schema or "const" in schema:
        parts.append(Node("enum", schema, document))
    if "not" in schema:
        parts.append(Node("not", schema, document))
    if "if" in schema:
        parts.append(Node("condition", schema, document))
    for combiner in COMBINERS:
        if isinstance(schema.get(combiner), list):
            each = [(part, document) for part in schema[combiner]]
            parts.append(Node("combined", schema, document, combiner, each))
    return parts


def parse(text: str, references: Mapping[str, str]) -> JsonSchema:
    """Parse a JSON Schema and check it against the draft that it names (draft 7 if it names none)."""
    root = _load(text)
    documents = {}
    for name, referenced in references.items():
        try:
            documents[name] = _load(referenced)
        except InvalidSchema as error:
            raise InvalidSchema(f"Invalid reference {name}: {error.message}") from None
    schema = JsonSchema(root, documents)
    _check(root)
    _check_references(schema, root, root)
    return schema


def _load(text: str) -> Any:
    try:
        loaded = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise InvalidSchema("the schema is nested too deeply") from None
    except ValueError as error:
        raise InvalidSchema(f"the schema is not JSON: {error}") from None
    if not isinstance(loaded, dict | bool):
        raise InvalidSchema("a JSON Schema is an object, true or false")
    return loaded


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _check(root: Any) -> None:
    import jsonschema_rs

    # Drafts of before 2019 that are not named are read as draft 7, as Confluent's registry does.
    named = isinstance(root, dict) and "$schema" in root
    checked = root if named or isinstance(root, bool) else {"$schema": _DRAFT_7, **root}
    try:
        jsonschema_rs.meta.validate(checked)
    except jsonschema_rs.ValidationError as error:
        where = "/".join(map(str, error.instance_path))
        raise InvalidSchema(f"#/{where}: {error.message}") from None
    except Exception as error:
        # A schema of an unknown draft cannot be checked, and is not wrong for that.
        if not named:
            raise InvalidSchema(str(error)) from None


_DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def _check_references(schema: JsonSchema, part: Any, document: Any) -> None:
    """Resolve every reference, so that a missing one is found now."""
    waiting = [part]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            reference = value.get("$ref")
            if isinstance(reference, str):
                schema.resolve(reference, document)
            # Values of these keywords are data, not schemas.
            waiting += [
                each for key, each in value.items() if key not in ("enum", "const", "default", "examples")
            ]
        elif isinstance(value, list):
            waiting += value


def _identifier(document: Any) -> str:
    found = (document.get("$id") or document.get("id")) if isinstance(document, dict) else None
    return found if isinstance(found, str) else ""


def _at(document: Any, pointer: str, reference: str) -> Any:
    if not pointer:
        return document
    if not pointer.startswith("/"):
        found = _anchored(document, pointer)
        if found is None:
            raise InvalidSchema(f"the schema refers to {reference}, which it does not define")
        return found
    value = document
    for word in pointer[1:].split("/"):
        key = word.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        elif isinstance(value, dict) and key in value:
            value = value[key]
        else:
            raise InvalidSchema(f"the schema refers to {reference}, which it does not define")
    return value


def _anchored(document: Any, name: str) -> Any:
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if value.get("$anchor") == name or value.get("$id") == f"#{name}":
                return value
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return None


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_sorted(each) for each in value]
    return value
