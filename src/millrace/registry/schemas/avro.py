"""Avro schemas: parsing by the specification, and the text as Avro's Java library prints it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from millrace.registry.schemas.schema import InvalidSchema, ParsedSchema, Problem

PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
NAMED = frozenset(("record", "error", "enum", "fixed"))

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_DEPTH = 200
_NO_DEFAULT = object()
# Attributes that the specification defines, for each kind; every other one is a property of the user's.
_RESERVED = {
    "record": {"type", "name", "namespace", "doc", "aliases", "fields"},
    "error": {"type", "name", "namespace", "doc", "aliases", "fields"},
    "enum": {"type", "name", "namespace", "doc", "aliases", "symbols", "default"},
    "fixed": {"type", "name", "namespace", "doc", "aliases", "size"},
    "array": {"type", "items"},
    "map": {"type", "values"},
}
_FIELD_RESERVED = {"name", "type", "doc", "default", "order", "aliases"}


@dataclass(eq=False, slots=True)
class AvroField:
    """A field of a record."""

    name: str
    type: AvroType
    default: Any = _NO_DEFAULT
    doc: str | None = None
    order: str = "ascending"
    aliases: tuple[str, ...] = ()
    properties: dict[str, Any] = field(default_factory=dict)

    @property
    def has_default(self) -> bool:
        return self.default is not _NO_DEFAULT


@dataclass(eq=False, slots=True)
class AvroType:
    """A type. Types that have a name occur once: every use of the name is the same object."""

    kind: str
    name: str = ""
    """The full name, with its namespace."""
    aliases: tuple[str, ...] = ()
    doc: str | None = None
    fields: list[AvroField] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)
    enum_default: str | None = None
    size: int = 0
    item: AvroType | None = None
    """The element of an array, the value of a map."""
    branches: list[AvroType] = field(default_factory=list)
    properties: dict[str, Any] = field(default_factory=dict)

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def namespace(self) -> str:
        return self.name.rpartition(".")[0]


class AvroSchema(ParsedSchema):
    """An Avro schema."""

    type = "AVRO"

    def __init__(self, root: AvroType, referenced: Iterable[str]) -> None:
        self.root = root
        self._referenced = frozenset(referenced)
        self.canonical = _compact(_Printer(self._referenced).print(root, ""))

    def normalized(self) -> str:
        return _compact(_Printer(self._referenced, is_normal=True).print(self.root, ""))

    def problems_reading(self, written: ParsedSchema) -> list[Problem]:
        from millrace.registry.schemas.avro_compatibility import problems_reading

        assert isinstance(written, AvroSchema)
        return problems_reading(self.root, written.root)


def parse(text: str, references: Mapping[str, str]) -> AvroSchema:
    """Parse an Avro schema; the referenced schemas are read first, so that it can use their names."""
    parser = _Parser()
    for name, referenced in references.items():
        try:
            parser.parse(_load(referenced))
        except InvalidSchema as error:
            raise InvalidSchema(f"Invalid reference {name}: {error.message}") from None
    referenced_names = set(parser.names)
    return AvroSchema(parser.parse(_load(text)), referenced_names)


def _load(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise InvalidSchema("the schema is nested too deeply") from None
    except ValueError as error:
        # The name of a primitive type is a schema even without quotes.
        if text.strip() in PRIMITIVES:
            return text.strip()
        raise InvalidSchema(f"the schema is not JSON: {error}") from None


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


class _Parser:
    """Reads schemas one after the other; later ones know the names of earlier ones."""

    def __init__(self) -> None:
        self.names: dict[str, AvroType] = {}
        self._depth = 0

    def parse(self, value: Any) -> AvroType:
        return self._type(value, "")

    def _type(self, value: Any, space: str) -> AvroType:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise InvalidSchema("the schema is nested too deeply")
        try:
            if isinstance(value, str):
                return self._named_or_primitive(value, space)
            if isinstance(value, list):
                return self._union(value, space)
            if isinstance(value, dict):
                return self._complex(value, space)
        finally:
            self._depth -= 1
        raise InvalidSchema(f"No type: {_excerpt(value)}")

    def _named_or_primitive(self, name: str, space: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        for candidate in (f"{space}.{name}" if space and "." not in name else name, name):
            if candidate in self.names:
                return self.names[candidate]
        raise InvalidSchema(f'Undefined name: "{name}"')

    def _union(self, branches: list[Any], space: str) -> AvroType:
        union = AvroType("union", branches=[self._type(branch, space) for branch in branches])
        seen = set()
        for branch in union.branches:
            if branch.kind == "union":
                raise InvalidSchema("Nested union: a union may not contain another union directly")
            key = branch.name or branch.kind
            if key in seen:
                raise InvalidSchema(f"Duplicate in union: {key}")
            seen.add(key)
        return union

    def _complex(self, value: dict[str, Any], space: str) -> AvroType:
        kind = value.get("type")
        if kind is None:
            raise InvalidSchema(f"No type: {_excerpt(value)}")
        if not isinstance(kind, str):
            # {"type": {"type": "string"}}: the inner one counts.
            return self._type(kind, space)
        if kind in NAMED:
            return self._named(kind, value, space)
        properties = {name: each for name, each in value.items() if name not in _RESERVED.get(kind, {"type"})}
        if kind in ("array", "map"):
            element = "items" if kind == "array" else "values"
            if element not in value:
                raise InvalidSchema(f"{kind} has no {element}: {_excerpt(value)}")
            return AvroType(kind, item=self._type(value[element], space), properties=properties)
        if kind in PRIMITIVES:
            _check_logical_type(kind, properties)
            return AvroType(kind, properties=properties)
        return self._named_or_primitive(kind, space)

    def _named(self, kind: str, value: dict[str, Any], space: str) -> AvroType:
        name = _full_name(value.get("name"), value.get("namespace"), space)
        if name in self.names:
            raise InvalidSchema(f"Can't redefine: {name}")
        namespace = name.rpartition(".")[0]
        doc = value.get("doc")
        named = AvroType(
            kind,
            name,
            aliases=tuple(_full_name(alias, None, namespace) for alias in _strings(value, "aliases")),
            doc=doc if isinstance(doc, str) else None,
            properties={key: each for key, each in value.items() if key not in _RESERVED[kind]},
        )
        # A record may use its own name, so it is known before its fields are.
        self.names[name] = named
        if kind == "enum":
            _read_enum(named, value)
        elif kind == "fixed":
            _read_fixed(named, value)
        else:
            fields = value.get("fields")
            if not isinstance(fields, list):
                raise InvalidSchema(f"Record has no fields: {name}")
            named.fields = [self._field(each, name, namespace) for each in fields]
            _require_distinct((each.name for each in named.fields), f"field in record {name}")
        return named

    def _field(self, value: Any, record: str, space: str) -> AvroField:
        if not isinstance(value, dict):
            raise InvalidSchema(f"Field of {record} is not an object: {_excerpt(value)}")
        name = _checked_name(value.get("name"))
        if "type" not in value:
            raise InvalidSchema(f"No field type: {name} of {record}")
        order = value.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in ("ascending", "descending", "ignore"):
            raise InvalidSchema(f"Invalid order of field {name} of {record}: {_excerpt(order)}")
        doc = value.get("doc")
        read = AvroField(
            name=name,
            type=self._type(value["type"], space),
            default=value.get("default", _NO_DEFAULT),
            doc=doc if isinstance(doc, str) else None,
            order=order.lower(),
            aliases=tuple(_strings(value, "aliases")),
            properties={key: each for key, each in value.items() if key not in _FIELD_RESERVED},
        )
        if read.has_default and not is_valid_default(read.type, read.default):
            raise InvalidSchema(
                f"Invalid default for field {name} of {record}: {_excerpt(read.default)}"
                f" is not a {read.type.kind}"
            )
        return read


def _read_enum(enum: AvroType, value: dict[str, Any]) -> None:
    symbols = value.get("symbols")
    if not isinstance(symbols, list):
        raise InvalidSchema(f"Enum has no symbols: {enum.name}")
    for symbol in symbols:
        _checked_name(symbol)
    _require_distinct(symbols, f"symbol in enum {enum.name}")
    enum.symbols = symbols
    default = value.get("default")
    if default is not None and default not in symbols:
        raise InvalidSchema(f"The Enum Default: {default} is not in the enum symbol set: {symbols}")
    enum.enum_default = default


def _read_fixed(fixed: AvroType, value: dict[str, Any]) -> None:
    size = value.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise InvalidSchema(f"Invalid or no size: {fixed.name}")
    fixed.size = size


def _full_name(name: Any, namespace: Any, space: str) -> str:
    if not isinstance(name, str):
        raise InvalidSchema(f"No name in schema: {_excerpt(name)}")
    full: str = name
    if "." not in name:
        outer = namespace if isinstance(namespace, str) else space
        full = f"{outer}.{name}" if outer else name
    full = full.lstrip(".")
    for part in full.split("."):
        _checked_name(part)
    return full


def _checked_name(name: Any) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidSchema(f"Illegal name: {_excerpt(name)}; a name has letters, digits and underscores")
    return name


def _check_logical_type(kind: str, properties: Mapping[str, Any]) -> None:
    if properties.get("logicalType") == "decimal" and kind == "bytes":
        precision, scale = properties.get("precision"), properties.get("scale", 0)
        is_valid = isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision
        if not is_valid or precision == 0:
            raise InvalidSchema(
                f"Invalid decimal: precision {_excerpt(precision)}, scale {_excerpt(scale)};"
                " the precision is positive, and the scale is at most as large"
            )


def _strings(value: Mapping[str, Any], name: str) -> list[str]:
    found = value.get(name, [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise InvalidSchema(f"{name} is not a list of strings: {_excerpt(found)}")
    return found


def _require_distinct(names: Iterable[str], what: str) -> None:
    seen = set()
    for name in names:
        if name in seen:
            raise InvalidSchema(f"Duplicate {what}: {name}")
        seen.add(name)


def is_valid_default(of: AvroType, value: Any) -> bool:
    """Whether a JSON value is a default of this type; one of a union may be of any branch."""
    match of.kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long":
            bits = 31 if of.kind == "int" else 63
            return _is_number(value) and value == int(value) and -(1 << bits) <= value < 1 << bits
        case "float" | "double":
            return _is_number(value)
        case "string" | "bytes" | "fixed":
            return isinstance(value, str)
        case "enum":
            return value in of.symbols
        case "array":
            assert of.item is not None
            return isinstance(value, list) and all(is_valid_default(of.item, each) for each in value)
        case "map":
            assert of.item is not None
            return isinstance(value, dict) and all(is_valid_default(of.item, v) for v in value.values())
        case "union":
            return any(is_valid_default(branch, value) for branch in of.branches)
    return isinstance(value, dict) and all(
        is_valid_default(each.type, value[each.name]) if each.name in value else each.has_default
        for each in of.fields
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _excerpt(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 100 else text[:100] + "..."


class _Printer:
    """Prints a type as JSON, in the order of Avro's Java library; each name is defined where it occurs first.

    The normal form writes full names and sorts the properties.
    """

    def __init__(self, defined: Iterable[str], *, is_normal: bool = False) -> None:
        self._defined = set(defined)
        self._is_normal = is_normal

    def print(self, of: AvroType, space: str) -> Any:
        if of.name:
            return self._named(of, space)
        if of.kind == "union":
            return [self.print(branch, space) for branch in of.branches]
        if of.item is not None:
            element = "items" if of.kind == "array" else "values"
            return {"type": of.kind, element: self.print(of.item, space)} | self._sorted(of.properties)
        return {"type": of.kind} | self._sorted(of.properties) if of.properties else of.kind

    def _named(self, of: AvroType, space: str) -> Any:
        if of.name in self._defined:
            return of.short_name if of.namespace == space and not self._is_normal else of.name
        self._defined.add(of.name)
        printed: dict[str, Any] = {"type": of.kind, "name": of.short_name}
        if self._is_normal:
            printed["name"] = of.name
        elif of.namespace != space:
            printed["namespace"] = of.namespace
        if of.doc is not None:
            printed["doc"] = of.doc
        if of.kind == "enum":
            printed["symbols"] = of.symbols
            if of.enum_default is not None:
                printed["default"] = of.enum_default
        elif of.kind == "fixed":
            printed["size"] = of.size
        else:
            printed["fields"] = [self._field(each, of.namespace) for each in of.fields]
        printed |= self._sorted(of.properties)
        if of.aliases:
            printed["aliases"] = list(map(self._alias(of.namespace), of.aliases))
        return printed

    def _alias(self, space: str) -> Any:
        def alias(name: str) -> str:
            namespace, _, short = name.rpartition(".")
            return short if namespace == space and not self._is_normal else name

        return alias

    def _field(self, of: AvroField, space: str) -> dict[str, Any]:
        printed: dict[str, Any] = {"name": of.name, "type": self.print(of.type, space)}
        if of.doc is not None:
            printed["doc"] = of.doc
        if of.has_default:
            printed["default"] = of.default
        if of.order != "ascending":
            printed["order"] = of.order
        if of.aliases:
            printed["aliases"] = list(of.aliases)
        return printed | self._sorted(of.properties)

    def _sorted(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        return dict(sorted(properties.items())) if self._is_normal else dict(properties)
