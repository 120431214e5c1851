"""Generates the function that encodes one version of one message."""

from collections.abc import Callable
from struct import pack
from typing import Any

from millrace.wire.schema import Array, Field, Fixed, Message, Nested, RecordsType, String, Struct, Type
from millrace.wire.source import Source, length_format
from millrace.wire.varint import uvarint

# Records up to this size are copied into the frame; larger ones go to the socket from where they are.
INLINE_RECORDS_BYTES = 16 * 1024

BYTES_LIKE = (bytes, bytearray, memoryview)


def encoder_source(message: type[Message], version: int, *, in_steps: bool = False) -> Callable[..., Any]:
    """Compile the encoder: (message, out, chunks) -> the bytearray to use next, or a generator of it."""
    return _Encoder(message, version, in_steps).compile()


class _Encoder(Source):
    def __init__(self, message: type[Message], version: int, in_steps: bool) -> None:
        super().__init__(message, version, in_steps)
        self._out = "out"
        # Fixed-width writes that wait to be done by one `struct` call: formats and the values' expressions.
        self._formats: list[str] = []
        self._values: list[str] = []
        self.refer("uvarint", uvarint)
        self.refer("pack", pack)
        self.refer("BYTES_LIKE", BYTES_LIKE)

    def compile(self) -> Callable[..., Any]:
        with self.block("def encode(message, out, chunks):"):
            self._struct("message", self.message)
            self._flush()
            self.end_step()
            self.line("return out")
        return self.function("encode")

    def _struct(self, struct: str, declaration: type[Struct]) -> None:
        for name, field in self.fields(declaration):
            self._value(field.type, self.version in field.nullable, f"{struct}.{name}")
        if self.flexible:
            self._tags(struct, self.tagged_fields(declaration))

    def _value(self, type: Type, nullable: bool, value: str) -> None:
        match type:
            case Fixed():
                self._fixed(type.format, value)
            case Nested():
                self._nested(type, nullable, value)
            case Array():
                self._array(type, nullable, value)
            case _:
                self._bytes(type, nullable, value)

    def _fixed(self, format: str, value: str) -> None:
        self._formats.append(format)
        self._values.append(value)

    def _no_tags(self) -> None:
        self._formats.append("x")  # a pad byte is a zero: the count of tags

    def _flush(self) -> None:
        """Write the fixed-width values that have gathered."""
        if self._formats:
            self.line(self._packing(self._formats, self._values))
        self._formats, self._values = [], []

    def _packing(self, formats: list[str], values: list[str]) -> str:
        match formats:
            case ["x"]:
                return f"{self._out}.append(0)"
            case ["B"]:
                return f"{self._out}.append({values[0]})"
        packer, _ = self.layout(formats, "pack")
        return f"{self._out} += {packer}({', '.join(values)})"

    def _length(self, type: Type, length: str) -> None:
        """Write a length, along with the fixed-width values before it."""
        if not self.flexible:
            self._fixed(length_format(type), length)
            self._flush()
            return
        with self.block(f"if {length} < 128:"):
            self.line(self._packing([*self._formats, "B"], [*self._values, length]))
        with self.block("else:"):
            self._flush()
            self.line(f"{self._out} += uvarint({length})")

    def _measured(self, nullable: bool, value: str, encoded: str, empty: str) -> tuple[str, str]:
        """Variables with the encoded value and the length to write for it."""
        content, length = self.variable("content"), self.variable("length")
        measure = f"{length} = len({content})" + (" + 1" if self.flexible else "")
        self.line(f"{content} = {value}" if nullable else f"{content} = {encoded.format(value)}")
        if not nullable:
            self.line(measure)
            return content, length
        with self.block(f"if {content} is None:"):
            self.line(f"{content} = {empty}")
            self.line(f"{length} = {0 if self.flexible else -1}")
        with self.block("else:"):
            if encoded != "{}":
                self.line(f"{content} = {encoded.format(content)}")
            self.line(measure)
        return content, length

    def _bytes(self, type: Type, nullable: bool, value: str) -> None:
        encoded = "{}.encode()" if isinstance(type, String) else "{}"
        content, length = self._measured(nullable, value, encoded, 'b""')
        self._length(type, length)
        if not isinstance(type, RecordsType):
            self.line(f"{self._out} += {content}")
            return
        with self.block(f"if {length} <= {INLINE_RECORDS_BYTES} and isinstance({content}, BYTES_LIKE):"):
            self.line(f"out += {content}")
        with self.block(f"elif {length} > {int(self.flexible)}:"):
            self.line(f"chunks += out, {content}")
            self.line("out = bytearray()")

    def _array(self, type: Array, nullable: bool, value: str) -> None:
        elements, length = self._measured(nullable, value, "{}", "()")
        self._length(type, length)
        match type.element:
            case Fixed(format=format) if len(format) == 1:
                self.line(f'{self._out} += pack(f">{{len({elements})}}{format}", *{elements})')
            case Nested(struct=declaration):
                struct = self.variable("struct")
                with self.block(f"for {struct} in {elements}:"):
                    self._struct(struct, declaration)
                    self._flush()
                    self.end_step()
            case simple:
                element = self.variable("element")
                with self.block(f"for {element} in {elements}:"):
                    self._value(simple, False, element)
                    self._flush()
                    self.end_step()

    def _nested(self, type: Nested, nullable: bool, value: str) -> None:
        struct = self.variable("struct")
        self.line(f"{struct} = {value}")
        if not nullable:
            self._struct(struct, type.struct)
            return
        self._flush()
        with self.block(f"if {struct} is None:"):
            self.line(f"{self._out}.append(0xFF)")
        with self.block("else:"):
            self.line(f"{self._out}.append(1)")
            self._struct(struct, type.struct)
            self._flush()

    def _tags(self, struct: str, tagged: list[tuple[str, Field]]) -> None:
        """Write the tagged fields that differ from their defaults."""
        if not tagged:
            self._no_tags()
            return
        if len(tagged) == 1 and isinstance(tagged[0][1].type, Fixed):
            self._lone_fixed_tag(struct, *tagged[0])
            return
        self._flush()
        present = {name: self._presence(f"{struct}.{name}", field) for name, field in tagged}
        with self.block(f"if {' or '.join(present.values())}:"):
            count, section = self.variable("count"), self.variable("section")
            self.line(f"{count} = 0")
            self.line(f"{section} = bytearray()")
            for name, field in tagged:
                with self.block(f"if {present[name]}:"):
                    self.line(f"{count} += 1")
                    self._tag(f"{struct}.{name}", field, section)
            self.line(f"{self._out} += uvarint({count})")
            self.line(f"{self._out} += {section}")
        with self.block("else:"):
            self.line(f"{self._out}.append(0)")

    def _lone_fixed_tag(self, struct: str, name: str, field: Field) -> None:
        """Write the count of tags, the tag, its size and its value in one go."""
        assert isinstance(field.type, Fixed)
        assert field.tag is not None
        value = f"{struct}.{name}"
        with self.block(f"if {self._presence(value, field)}:"):
            formats = [*self._formats, *"BBB", field.type.format]
            values = [*self._values, "1", str(field.tag), str(field.type.size), value]
            self.line(self._packing(formats, values))
        with self.block("else:"):
            self.line(self._packing([*self._formats, "x"], self._values))
        self._formats, self._values = [], []

    def _presence(self, value: str, field: Field) -> str:
        """The condition under which a tagged field is written at all."""
        if field.default is None:
            return f"{value} is not None"
        if field.default == ():
            return value
        return f"{value} != {field.default!r}"

    def _tag(self, value: str, field: Field, section: str) -> None:
        content, outer = self.variable("tagged"), self._out
        self.line(f"{content} = bytearray()")
        self._out = content
        self._value(field.type, self.version in field.nullable, value)
        self._flush()
        self._out = outer
        assert field.tag is not None
        self.line(f"{section} += {uvarint(field.tag)!r} + uvarint(len({content})) + {content}")
