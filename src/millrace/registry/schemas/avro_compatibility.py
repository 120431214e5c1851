"""Schema resolution of Avro: why data of a writer's schema cannot be read with a reader's schema."""

from __future__ import annotations

from millrace.registry.schemas.avro import AvroField, AvroType
from millrace.registry.schemas.schema import Problem

# The types that a reader may have for data of another type.
_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


def problems_reading(reader: AvroType, writer: AvroType) -> list[Problem]:
    """The reasons why a reader cannot resolve data of the writer's schema."""
    return _Resolution().compare(reader, writer, "")


class _Resolution:
    """One comparison. Pairs of records that are being compared count as compatible, since types may recur."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, int]] = set()

    def compare(self, reader: AvroType, writer: AvroType, path: str) -> list[Problem]:
        if writer.kind == "union":
            return self._written_union(reader, writer, path)
        if reader.kind == "union":
            return self._read_union(reader, writer, path)
        if _kind(reader) != _kind(writer):
            if reader.kind in _PROMOTIONS.get(writer.kind, ()):
                return []
            return [_type_mismatch(reader, writer, path)]
        match reader.kind:
            case "array":
                assert reader.item is not None and writer.item is not None
                return self.compare(reader.item, writer.item, f"{path}/items")
            case "map":
                assert reader.item is not None and writer.item is not None
                return self.compare(reader.item, writer.item, f"{path}/values")
            case "fixed":
                return _name_problems(reader, writer, path) or _size_problems(reader, writer, path)
            case "enum":
                return _name_problems(reader, writer, path) or _symbol_problems(reader, writer, path)
            case "record" | "error":
                return _name_problems(reader, writer, path) or self._records(reader, writer, path)
        return []

    def _written_union(self, reader: AvroType, writer: AvroType, path: str) -> list[Problem]:
        problems = []
        for index, branch in enumerate(writer.branches):
            found = self.compare(reader, branch, path)
            if found and reader.kind == "union":
                problems.append(_missing_branch(branch, f"{path}/{index}"))
            else:
                problems += found
        return problems

    def _read_union(self, reader: AvroType, writer: AvroType, path: str) -> list[Problem]:
        for branch in reader.branches:
            # A failed branch must not leave pairs behind that count as compatible.
            seen = set(self._seen)
            if not self.compare(branch, writer, path):
                return []
            self._seen = seen
        return [_missing_branch(writer, path)]

    def _records(self, reader: AvroType, writer: AvroType, path: str) -> list[Problem]:
        pair = (id(reader), id(writer))
        if pair in self._seen:
            return []
        self._seen.add(pair)
        written = {field.name: field for field in writer.fields}
        problems = []
        for index, field in enumerate(reader.fields):
            old = _written_field(field, written)
            if old is not None:
                problems += self.compare(field.type, old.type, f"{path}/fields/{index}/type")
            elif not field.has_default:
                problems.append(_missing_default(field, f"{path}/fields/{index}"))
        return problems


def _kind(of: AvroType) -> str:
    return "record" if of.kind == "error" else of.kind


def _written_field(field: AvroField, written: dict[str, AvroField]) -> AvroField | None:
    return next((written[name] for name in (field.name, *field.aliases) if name in written), None)


def _name_problems(reader: AvroType, writer: AvroType, path: str) -> list[Problem]:
    # Only the name without its namespace counts, as in Avro's own libraries.
    if reader.short_name == writer.short_name or writer.name in reader.aliases:
        return []
    text = f"The name of the schema has changed (path '{path}/name')"
    return [Problem("NAME_MISMATCH", f"{path}/name", text, f"expected: {writer.name}")]


def _size_problems(reader: AvroType, writer: AvroType, path: str) -> list[Problem]:
    if reader.size == writer.size:
        return []
    text = f"The size of FIXED type field at path '{path}/size' in the new schema does not match"
    info = f"expected: {writer.size}, found: {reader.size}"
    return [Problem("FIXED_SIZE_MISMATCH", f"{path}/size", text, info)]


def _symbol_problems(reader: AvroType, writer: AvroType, path: str) -> list[Problem]:
    missing = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
    if not missing or reader.enum_default is not None:
        return []
    text = (
        f"The new schema is missing enum symbols '[{', '.join(missing)}]' at path '{path}/symbols'"
        " that are in the old schema"
    )
    return [Problem("MISSING_ENUM_SYMBOLS", f"{path}/symbols", text, f"[{', '.join(missing)}]")]


def _type_mismatch(reader: AvroType, writer: AvroType, path: str) -> Problem:
    text = f"The type (path '{path or '/'}') of a field in the new schema does not match with the old schema"
    info = f"reader type: {reader.kind.upper()} not compatible with writer type: {writer.kind.upper()}"
    return Problem("TYPE_MISMATCH", path, text, info)


def _missing_branch(writer: AvroType, path: str) -> Problem:
    text = (
        f"The new schema is missing a type inside a union field at path '{path or '/'}'"
        f" in the old schema: {writer.name or writer.kind.upper()}"
    )
    info = f"reader union lacking writer type: {writer.kind.upper()}"
    return Problem("MISSING_UNION_BRANCH", path, text, info)


def _missing_default(field: AvroField, path: str) -> Problem:
    text = (
        f"The field '{field.name}' at path '{path}' in the new schema has no default value"
        " and is missing in the old schema"
    )
    return Problem("READER_FIELD_MISSING_DEFAULT_VALUE", path, text, field.name)
