"""Generates the function that decodes one version of one message."""

from collections.abc import Callable
from struct import error as LayoutError
from struct import unpack_from
from typing import Any

from millrace.errors import Error, KafkaError
from millrace.wire.schema import (
    Array,
    Bytes,
    Field,
    Fixed,
    Message,
    Nested,
    RecordsType,
    Request,
    String,
    Struct,
    Type,
)
from millrace.wire.source import Source, length_format
from millrace.wire.varint import read_uvarint

# Objects are many times as large as the bytes they are made from, and tags take a while to skip; no real
# client comes near this.
MAX_REQUEST_ELEMENTS = 100_000
# A request of more elements is decoded in steps: it would take milliseconds, and other clients wait.
MAX_SHORT_REQUEST_ELEMENTS = 1000


class MalformedMessage(KafkaError):
    """Bytes that are no message of the kind and version they claim to be."""

    def __init__(self, message: str) -> None:
        super().__init__(Error.INVALID_REQUEST, message)


class LongRequest(Exception):
    """A request has too many elements to be decoded in one go."""


def decoder_source(message: type[Message], version: int, *, in_steps: bool = False) -> Callable[..., Any]:
    """Compile the decoder: (buffer, position) -> (message, position after it), or a generator of that.

    The decoder of a request raises LongRequest for one that only the generator should decode.
    """
    return _Decoder(message, version, in_steps).compile()


class _Decoder(Source):
    def __init__(self, message: type[Message], version: int, in_steps: bool) -> None:
        super().__init__(message, version, in_steps)
        # Fixed-width reads that wait to be done by one `struct` call: formats and where the values go.
        self._formats: list[str] = []
        self._targets: list[str] = []
        self._is_request = issubclass(message, Request)
        self.refer("new", object.__new__)
        self.refer("unpack_from", unpack_from)
        self.refer("read_uvarint", read_uvarint)
        self.refer("LayoutError", LayoutError)
        self.refer("MalformedMessage", MalformedMessage)
        self.refer("LongRequest", LongRequest)

    def compile(self) -> Callable[..., Any]:
        name = f"{self.message.__name__} v{self.version}"
        with self.block("def decode(buffer, position):"):
            with self.block("if type(buffer) is not memoryview:"):
                self.line("buffer = memoryview(buffer)")
            self.line("limit = len(buffer)")
            if self._is_request:
                room = MAX_REQUEST_ELEMENTS if self.in_steps else MAX_SHORT_REQUEST_ELEMENTS
                self.line(f"room = {room}")
            with self.block("try:"):
                decoded = self._struct(self.message)
                self._flush()
                self.end_step()
                self.line(f"return {decoded}, position")
            with self.block("except (LayoutError, IndexError, ValueError) as reason:"):
                self.line(f'raise MalformedMessage(f"{name}: {{reason}}") from None')
        return self.function("decode")

    def _struct(self, struct: type[Struct]) -> str:
        decoded = self.variable("struct")
        self.line(f"{decoded} = new({self.refer(struct.__name__, struct)})")
        for name, field in struct.wire_fields.items():
            if self.version not in field.versions or field.tag is not None:
                self.line(f"{decoded}.{name} = {self._default(field)}")
            else:
                self._value(field.type, self.version in field.nullable, f"{decoded}.{name}")
        if self.flexible:
            self._tags(decoded, self.tagged_fields(struct))
        return decoded

    def _default(self, field: Field) -> str:
        if isinstance(field.default, type):
            return f"{self.refer(field.default.__name__, field.default)}()"
        return "[]" if field.default == () else repr(field.default)

    def _value(self, type: Type, nullable: bool, target: str) -> None:
        match type:
            case Fixed():
                self._fixed(type.format, target)
            case Nested():
                self._nested(type, nullable, target)
            case _:
                self._sized(type, nullable, target)

    def _fixed(self, format: str, target: str) -> None:
        self._formats.append(format)
        self._targets.append(target)

    def _flush(self) -> None:
        """Read the fixed-width values that have gathered."""
        if self._formats == ["B"]:
            self.line(f"{self._targets[0]} = buffer[position]")
            self.line("position += 1")
        elif self._formats:
            unpack, size = self.layout(self._formats, "unpack_from")
            self.line(f"{', '.join(self._targets)}, = {unpack}(buffer, position)")
            self.line(f"position += {size}")
        self._formats.clear()
        self._targets.clear()

    def _nested(self, type: Nested, nullable: bool, target: str) -> None:
        if not nullable:
            self.line(f"{target} = {self._struct(type.struct)}")
            return
        presence = self.variable("presence")
        self._fixed("b", presence)
        self._flush()
        with self.block(f"if {presence} < 0:"):
            self.line(f"{target} = None")
        with self.block("else:"):
            decoded = self._struct(type.struct)
            self._flush()
            self.line(f"{target} = {decoded}")

    def _sized(self, type: Type, nullable: bool, target: str) -> None:
        """Read a value that begins with its length."""
        length = self._length(type)
        with self.block(f"if {length} >= 0:"):
            if isinstance(type, Array):
                self._array(type.element, length, target)
            else:
                self._bytes(type, length, target)
        with self.block("else:"):
            field = target.rpartition(".")[2]
            self.line(f"{target} = None" if nullable else f'raise ValueError("{field} may not be null")')

    def _length(self, type: Type) -> str:
        length = self.variable("length")
        if not self.flexible:
            self._fixed(length_format(type), length)
            self._flush()
            return length
        # Nearly every compact length fits one byte, which is read along with the fields before it.
        self._fixed("B", length)
        self._flush()
        with self.block(f"if {length} > 127:"):
            self.line(f"{length}, position = read_uvarint(buffer, position - 1)")
        self.line(f"{length} -= 1")
        return length

    def _bytes(self, type: Type, length: str, target: str) -> None:
        end = self.variable("end")
        self.line(f"{end} = position + {length}")
        with self.block(f"if {end} > limit:"):
            self.line(f'raise ValueError("{target.rpartition(".")[2]} is cut short")')
        match type:
            case String():
                self.line(f"{target} = buffer[position:{end}].tobytes().decode()")
            case Bytes():
                self.line(f"{target} = buffer[position:{end}].tobytes()")
            case RecordsType():
                self.line(f"{target} = buffer[position:{end}]")
        self.line(f"position = {end}")

    def _array(self, element: Type, count: str, target: str) -> None:
        with self.block(f"if {count} * {self.least_size(element)} > limit - position:"):
            self.line(f'raise ValueError("{target.rpartition(".")[2]} has more elements than bytes remain")')
        self._take_room(count)
        if isinstance(element, Fixed) and len(element.format) == 1:
            self.line(f'{target} = list(unpack_from(f">{{{count}}}{element.format}", buffer, position))')
            self.line(f"position += {count} * {element.size}")
            return
        elements = self.variable("elements")
        self.line(f"{elements} = {target} = []")
        with self.block(f"for _ in range({count}):"):
            if isinstance(element, Nested):
                decoded = self._struct(element.struct)
            else:
                decoded = self.variable("element")
                self._value(element, False, decoded)
            self._flush()
            self.line(f"{elements}.append({decoded})")
            self.end_step()

    def _take_room(self, count: str) -> None:
        if not self._is_request:
            return
        self.line(f"room -= {count}")
        with self.block("if room < 0:"):
            if self.in_steps:
                self.line(f'raise ValueError("more than {MAX_REQUEST_ELEMENTS} elements and tags")')
            else:
                self.line("raise LongRequest")

    def _tags(self, struct: str, tagged: list[tuple[str, Field]]) -> None:
        tags = self.variable("tags")
        self._fixed("B", tags)
        self._flush()
        with self.block(f"if {tags}:"):
            with self.block(f"if {tags} > 127:"):
                self.line(f"{tags}, position = read_uvarint(buffer, position - 1)")
            self._take_room(tags)
            with self.block(f"for _ in range({tags}):"):
                self._tag(struct, tagged)
                self.end_step()

    def _tag(self, struct: str, tagged: list[tuple[str, Field]]) -> None:
        tag, end = self.variable("tag"), self.variable("end")
        self.line(f"{tag}, position = read_uvarint(buffer, position)")
        self.line(f"{end}, position = read_uvarint(buffer, position)")
        self.line(f"{end} += position")
        with self.block(f"if {end} > limit:"):
            self.line('raise ValueError("tagged field is cut short")')
        for name, field in tagged:
            with self.block(f"if {tag} == {field.tag}:"):
                self._value(field.type, self.version in field.nullable, f"{struct}.{name}")
                self._flush()
                with self.block(f"if position > {end}:"):
                    self.line(f'raise ValueError("{name} is longer than its tag says")')
        self.line(f"position = {end}")
