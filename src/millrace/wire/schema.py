"""The language that messages are declared in: field types, structs, and the versions each part belongs to.

One class stands for all versions of a message. A declaration reads

    class TopicProduceData(Struct):
        name: str = string("3-12")
        topic_id: bytes = uuid("13+")
        partition_data: list[PartitionProduceData] = array(PartitionProduceData)

and gives a slotted class whose fields all have Kafka's defaults.
"""

import base64
import dataclasses
from typing import Any, ClassVar, TypeAlias, dataclass_transform

ZERO_UUID = bytes(16)

# Decoding gives a memoryview into the frame; encoding takes any bytes-like object, or an opaque one that only
# has a length (a slice of a file), which is handed on unread.
Records: TypeAlias = Any

_LAST_VERSION = 0x7FFF
_ALL = range(_LAST_VERSION + 1)
_NEVER = range(0)
_OF_THE_TYPE = object()


def uuid_to_text(uuid: bytes) -> str:
    """Kafka's text form of an id: url-safe base64 without padding."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def uuid_from_text(text: str) -> bytes:
    """The 16 bytes of an id in Kafka's text form; ValueError if it is none."""
    uuid = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if len(uuid) != 16:
        raise ValueError(f"{text!r} is not a 16-byte id")
    return uuid


def parse_versions(text: str) -> range:
    """Versions as Kafka writes them: `3+`, `0-12`, `5` or `none`."""
    if text == "none":
        return _NEVER
    if text.endswith("+"):
        return range(int(text[:-1]), _LAST_VERSION + 1)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


class Type:
    """The wire type of a field; calling it declares a field of this type."""

    zero: object = None

    def __call__(
        self,
        versions: str = "0+",
        *,
        nullable: str | bool = False,
        tag: int | None = None,
        default: object = _OF_THE_TYPE,
    ) -> Any:
        return Field(
            type=self,
            versions=parse_versions(versions),
            nullable=parse_versions(nullable) if isinstance(nullable, str) else _ALL if nullable else _NEVER,
            tag=tag,
            default=self.zero if default is _OF_THE_TYPE else default,
        )


@dataclasses.dataclass(frozen=True)
class Fixed(Type):
    """A value of fixed width, written with a `struct` format."""

    format: str
    size: int
    zero: object = 0


class String(Type):
    zero = ""


class Bytes(Type):
    zero = b""


class RecordsType(Type):
    """Record batches, passed through untouched."""


@dataclasses.dataclass(frozen=True)
class Array(Type):
    element: Type
    zero: object = ()  # stands for a new list in each message


@dataclasses.dataclass(frozen=True)
class Nested(Type):
    struct: "type[Struct]"


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct: its type and the versions it exists, may be null or is tagged in."""

    type: Type
    versions: range
    nullable: range
    tag: int | None
    default: object


int8 = Fixed("b", 1)
int16 = Fixed("h", 2)
int32 = Fixed("i", 4)
int64 = Fixed("q", 8)
uint16 = Fixed("H", 2)
uint32 = Fixed("I", 4)
float64 = Fixed("d", 8, zero=0.0)
boolean = Fixed("?", 1, zero=False)
uuid = Fixed("16s", 16, zero=ZERO_UUID)
string = String()
octets = Bytes()
records = RecordsType()


def array(
    of: "Type | type[Struct]", versions: str = "0+", *, nullable: str | bool = False, **more: Any
) -> Any:
    """Declare a list of a simple type or of structs."""
    element = of if isinstance(of, Type) else Nested(of)
    return Array(element)(versions, nullable=nullable, **more)


def nested(
    struct: "type[Struct]", versions: str = "0+", *, nullable: str | bool = False, tag: int | None = None
) -> Any:
    """Declare a struct within a struct: None by default where it may be absent."""
    absent = nullable or tag is not None
    return Nested(struct)(versions, nullable=nullable, tag=tag, default=None if absent else struct)


@dataclass_transform()
class Declaration(type):
    """Turns a class body of declared fields into a slotted class with an `__init__` of them.

    As a dataclass would be, without what makes hundreds of those slow to import.
    """

    wire_fields: dict[str, Field]

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **facts: object
    ) -> "Declaration":
        fields = {key: value for key, value in namespace.items() if isinstance(value, Field)}
        body = {key: value for key, value in namespace.items() if key not in fields}
        body["__slots__"] = tuple(fields)
        body["__init__"] = _initializer(fields)
        cls = super().__new__(mcs, name, bases, body)
        cls.wire_fields = fields
        return cls

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **facts: Any) -> None:
        super().__init__(name, bases, namespace)
        if facts:
            _describe(cls, **facts)


def _initializer(fields: dict[str, Field]) -> Any:
    """The `__init__` that takes all fields and has a default for each, lists and structs new every time."""
    defaults: dict[str, object] = {"NEW": object()}
    parameters, lines = ["self"], ["pass"]
    for name, field in fields.items():
        new = "[]" if field.default == () else ""
        if isinstance(field.default, Declaration):
            new = f"new_{name}()"
            defaults[f"new_{name}"] = field.default
        defaults[f"default_{name}"] = field.default
        parameters.append(f"{name}=NEW" if new else f"{name}=default_{name}")
        lines.append(f"self.{name} = {new} if {name} is NEW else {name}" if new else f"self.{name} = {name}")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines), defaults)
    return defaults["__init__"]


def _describe(
    message: Any,
    *,
    versions: str = "",
    flexible: str = "none",
    key: int | None = None,
    record_type: int | None = None,
    to: Any = None,
) -> None:
    """Give a message the facts written beside its base class."""
    if to is not None:
        message.request, message.versions, message.flexible_from = to, to.versions, to.flexible_from
        to.response = message
        return
    flexible_versions = parse_versions(flexible)
    message.versions = parse_versions(versions)
    message.flexible_from = flexible_versions[0] if flexible_versions else _LAST_VERSION + 1
    if key is not None:
        message.api_key = key
        Request.by_key[key] = message
    if record_type is not None:
        message.record_type = record_type


class Struct(metaclass=Declaration):
    """A group of fields."""

    def __repr__(self) -> str:
        fields = (f"{name}={getattr(self, name)!r}" for name in type(self).wire_fields)
        return f"{type(self).__name__}({', '.join(fields)})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in type(self).wire_fields)

    __hash__ = None  # type: ignore[assignment]


class Message(Struct):
    """A struct that stands alone and therefore has versions of its own."""

    versions: ClassVar[range]
    flexible_from: ClassVar[int]


class Request(Message):
    """A request of a client; `key` names the API."""

    api_key: ClassVar[int]
    response: ClassVar["type[Response]"]
    by_key: ClassVar[dict[int, "type[Request]"]] = {}


class Response(Message):
    """The response `to` a request, in the same versions."""

    request: ClassVar[type[Request]]


class RecordKey(Message):
    """The key of a record in an internal topic; `record_type` says of which kind."""

    record_type: ClassVar[int]
