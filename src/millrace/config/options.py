"""A configuration option: its name, kind, default, limits and one line of documentation."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any

Value = bool | int | float | str | tuple[str, ...] | None

LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1
SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


class ConfigError(ValueError):
    """A configuration that cannot be used; the text says which option and what is expected."""


class Kind(IntEnum):
    """The types of Kafka's configuration values, numbered as DescribeConfigs numbers them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Scope(IntEnum):
    """Whether an option can be changed on a running broker."""

    READ_ONLY = 0
    PER_BROKER = 1
    CLUSTER_WIDE = 2


_INTEGER_BITS = {Kind.SHORT: 16, Kind.INT: 32, Kind.LONG: 64}


@dataclass(frozen=True, slots=True)
class Option:
    """One option; the single source for parsing, DescribeConfigs and the reference page."""

    name: str
    kind: Kind
    default: Value
    doc: str
    at_least: float | None = None
    at_most: float | None = None
    choices: tuple[str, ...] = ()
    also: Value = None
    """One value that is allowed although it lies outside the limits (a level of -1, for example)."""
    scope: Scope = Scope.READ_ONLY
    synonyms: tuple[str, ...] = ()
    """For a topic option: the broker options that set its default, strongest first."""
    unit_ms: int = 1
    """For a broker option in minutes or hours: the milliseconds of one unit."""

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")

    @property
    def sensitive(self) -> bool:
        return self.kind is Kind.PASSWORD

    def parse(self, text: str | None) -> Value:
        """Read a value from text and check it against the limits."""
        if text is None:
            return None
        value = self._read(text.strip())
        if value != self.also or self.also is None:
            self._check(value)
        return value

    def _read(self, text: str) -> Value:
        match self.kind:
            case Kind.BOOLEAN:
                if text.lower() not in ("true", "false"):
                    raise ConfigError(f"{self.name} must be true or false, got {text!r}")
                return text.lower() == "true"
            case Kind.SHORT | Kind.INT | Kind.LONG:
                return self._read_integer(text)
            case Kind.DOUBLE:
                try:
                    return float(_digits(text))
                except ValueError:
                    raise ConfigError(f"{self.name} must be a number, got {text!r}") from None
            case Kind.LIST:
                return tuple(item.strip() for item in text.split(",")) if text else ()
            case _:
                return text

    def _read_integer(self, text: str) -> int:
        try:
            value = int(_digits(text))
        except ValueError:
            raise ConfigError(f"{self.name} must be a whole number, got {text!r}") from None
        limit = 1 << (_INTEGER_BITS[self.kind] - 1)
        if not -limit <= value < limit:
            raise ConfigError(f"{self.name} must lie between {-limit} and {limit - 1}, got {value}")
        return value

    def _check(self, value: Value) -> None:
        if isinstance(value, int | float):
            if self.at_least is not None and value < self.at_least:
                raise ConfigError(f"{self.name} must be at least {self.at_least}, got {value}")
            if self.at_most is not None and value > self.at_most:
                raise ConfigError(f"{self.name} must be at most {self.at_most}, got {value}")
        elif self.choices:
            given = value if isinstance(value, tuple) else (value,)
            for item in given:
                if item not in self.choices:
                    raise ConfigError(f"{self.name} must be one of {', '.join(self.choices)}, got {item!r}")
            if len(set(given)) < len(given):
                raise ConfigError(f"{self.name} names a value twice: {', '.join(map(str, given))}")

    def text(self, value: Value) -> str | None:
        """Format a value as Kafka shows it."""
        match value:
            case None:
                return None
            case bool():
                return "true" if value else "false"
            case tuple():
                return ",".join(value)
            case float():
                return repr(value).replace("e+", "E").replace("e", "E")
            case _:
                return str(value)


def _digits(text: str) -> str:
    """A number as Java reads it; Python would allow 1_000 too."""
    if "_" in text:
        raise ValueError(text)
    return text


def declare(kind: Kind) -> Callable[..., Any]:
    """Make the function that declares a dataclass field as an option of this kind."""

    def declare_field(default: Value, doc: str, **details: Any) -> Any:
        return field(
            default=default, metadata={"kind": kind, "default": default, "doc": doc, "details": details}
        )

    return declare_field


boolean = declare(Kind.BOOLEAN)
string = declare(Kind.STRING)
integer = declare(Kind.INT)
long = declare(Kind.LONG)
double = declare(Kind.DOUBLE)
strings = declare(Kind.LIST)
secret = declare(Kind.PASSWORD)


def options_of(cls: type) -> Iterator[Option]:
    """The options that a dataclass declares; an attribute's name is the option's, dots as underscores."""
    for declared in fields(cls):
        if declared.metadata:
            yield Option(
                name=declared.name.replace("_", "."),
                kind=declared.metadata["kind"],
                default=declared.metadata["default"],
                doc=declared.metadata["doc"],
                **declared.metadata["details"],
            )
