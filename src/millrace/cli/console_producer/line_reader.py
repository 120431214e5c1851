"""Parses lines of text into records, by the rules of Kafka's console producer."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from millrace.cli.terminal.errors import CommandError


class NewRecord(NamedTuple):
    """A parsed line; `headers` is None if it has none."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None


@dataclass(frozen=True, slots=True)
class LineReader:
    """The format of a line: `headers <delimiter> key <separator> value`; headers and key are optional."""

    parse_key: bool = False
    parse_headers: bool = False
    ignore_error: bool = False
    key_separator: bytes = b"\t"
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None

    @classmethod
    def from_properties(cls, properties: dict[str, str]) -> "LineReader":
        """Read settings such as parse.key=true; settings of custom readers are ignored."""
        settings: dict[str, object] = {}
        for name, default in _defaults(cls).items():
            text = properties.get(name.replace("_", "."))
            if text is not None:
                settings[name] = (
                    text.strip().lower() == "true" if isinstance(default, bool) else text.encode()
                )
        reader = cls(**settings)  # type: ignore[arg-type]  # bool for bools, bytes for all others
        reader._check()
        return reader

    def _check(self) -> None:
        pairs = (
            ("headers.delimiter", self.headers_delimiter, "headers.separator", self.headers_separator),
            (
                "headers.delimiter",
                self.headers_delimiter,
                "headers.key.separator",
                self.headers_key_separator,
            ),
            (
                "headers.separator",
                self.headers_separator,
                "headers.key.separator",
                self.headers_key_separator,
            ),
            ("null.marker", self.null_marker, "key.separator", self.key_separator),
            ("null.marker", self.null_marker, "headers.delimiter", self.headers_delimiter),
            ("null.marker", self.null_marker, "headers.separator", self.headers_separator),
            ("null.marker", self.null_marker, "headers.key.separator", self.headers_key_separator),
        )
        for first, first_value, second, second_value in pairs:
            if first_value == second_value:
                raise CommandError(f"{first} and {second} may not be equal")

    def records(self, lines: Iterable[bytes]) -> Iterator[NewRecord]:
        """Yield the record of every line."""
        for number, line in enumerate(lines, 1):
            yield self.parse(line.removesuffix(b"\n").removesuffix(b"\r"), number)

    def parse(self, line: bytes, number: int) -> NewRecord:
        """Parse one line; a missing part is an error unless ignore.error is set."""
        headers, rest = self._cut(
            self.parse_headers, line, self.headers_delimiter, "headers delimiter", number
        )
        key, value = self._cut(self.parse_key, rest, self.key_separator, "key separator", number)
        return NewRecord(
            key=self._or_null(key),
            value=self._or_null(value),
            headers=self._headers(headers, number) if self._or_null(headers) is not None else None,
        )

    def _cut(
        self, wanted: bool, line: bytes, separator: bytes, name: str, number: int
    ) -> tuple[bytes | None, bytes]:
        if not wanted:
            return None, line
        part, found, rest = line.partition(separator)
        if found:
            return part, rest
        if self.ignore_error:
            return None, line
        raise CommandError(f"No {name} found on line number {number}: '{line.decode(errors='replace')}'")

    def _or_null(self, part: bytes | None) -> bytes | None:
        return None if part == self.null_marker else part

    def _headers(self, headers: bytes | None, number: int) -> list[tuple[str, bytes | None]]:
        return [self._header(pair, number) for pair in (headers or b"").split(self.headers_separator)]

    def _header(self, pair: bytes, number: int) -> tuple[str, bytes | None]:
        name, found, value = pair.partition(self.headers_key_separator)
        text = name.decode(errors="replace")
        if not found:
            if self.ignore_error:
                return text, None
            raise CommandError(f"No header key separator found in pair '{text}' on line number {number}")
        if name == self.null_marker:
            raise CommandError(
                f"Header keys should not be equal to the null marker '{text}' as they can't be null"
            )
        return text, self._or_null(value)


def _defaults(cls: type[LineReader]) -> dict[str, object]:
    return {field.name: field.default for field in cls.__dataclass_fields__.values()}
