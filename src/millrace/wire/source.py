"""Python source under construction, shared by the generators of decoders and encoders."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct as Layout
from typing import Any, cast

from millrace.wire.schema import Field, Fixed, Message, Nested, String, Struct, Type


class Source:
    """The body of one function for one version of one message, and the objects it refers to.

    With `in_steps` the function is a generator that yields after each element of each array.
    """

    def __init__(self, message: type[Message], version: int, in_steps: bool) -> None:
        self.message = message
        self.version = version
        self.in_steps = in_steps
        self.flexible = version >= message.flexible_from
        self._lines: list[str] = []
        self._depth = 0
        self._names = 0
        self._objects: dict[str, object] = {}

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def end_step(self) -> None:
        if self.in_steps:
            self.line("yield")

    def variable(self, meaning: str) -> str:
        """A name for a local variable that nothing else in the function uses."""
        self._names += 1
        return f"{meaning}_{self._names}"

    def refer(self, name: str, thing: object) -> str:
        """A name under which the function finds an object."""
        if self._objects.setdefault(name, thing) is not thing:
            name = self.variable(name)
            self._objects[name] = thing
        return name

    def layout(self, formats: list[str], method: str) -> tuple[str, int]:
        """A name for a method of the `struct.Struct` with these formats, and the bytes it covers."""
        name = f"{method}_{''.join(formats)}".replace("?", "bool")
        layout = Layout(">" + "".join(formats))
        self._objects.setdefault(name, getattr(layout, method))
        return name, layout.size

    def function(self, name: str) -> Callable[..., Any]:
        """Compile the source and hand out the function it defines."""
        code = compile("\n".join(self._lines), f"<{self.message.__name__} v{self.version} {name}>", "exec")
        exec(code, self._objects)
        return cast("Callable[..., Any]", self._objects[name])

    def fields(self, struct: type[Struct]) -> Iterator[tuple[str, Field]]:
        """The fields that are written one after the other in this version."""
        for name, field in struct.wire_fields.items():
            if self.version in field.versions and field.tag is None:
                yield name, field

    def tagged_fields(self, struct: type[Struct]) -> list[tuple[str, Field]]:
        """The fields that are tagged in this version, by tag."""
        tagged = [
            (name, field)
            for name, field in struct.wire_fields.items()
            if self.version in field.versions and field.tag is not None
        ]
        return sorted(tagged, key=lambda item: item[1].tag or 0)

    def least_size(self, type: Type) -> int:
        """The fewest bytes that a value of this type takes."""
        match type:
            case Fixed():
                return type.size
            case Nested():
                sizes = (
                    1 if self.version in field.nullable else self.least_size(field.type)
                    for _, field in self.fields(type.struct)
                )
                return sum(sizes) + self.flexible
            case _ if self.flexible:
                return 1
            case String():
                return 2
            case _:
                return 4


def length_format(type: Type) -> str:
    """The struct format for the length of a string, bytes or an array in versions that are not flexible."""
    return "h" if isinstance(type, String) else "i"
