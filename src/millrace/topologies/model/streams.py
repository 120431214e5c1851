"""Streams: the named outputs of a component, each with its fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from millrace.topologies.model.errors import TopologyError

DEFAULT_STREAM = "default"


@dataclass(frozen=True, slots=True, init=False)
class Stream:
    """A stream that a component emits to; on a direct stream the emitter names the receiving task."""

    fields: tuple[str, ...]
    name: str
    direct: bool
    positions: Mapping[str, int]
    """The position of each field."""

    def __init__(self, fields: Iterable[str] = (), name: str = DEFAULT_STREAM, direct: bool = False) -> None:
        names = tuple(fields)
        if isinstance(fields, str):
            raise TopologyError(
                f"the fields of stream {name} must be a list of names, not the text {fields!r}"
            )
        wrong = [field for field in names if not isinstance(field, str) or not field]
        if wrong:
            raise TopologyError(f"stream {name} has a field named {wrong[0]!r}; a name is a text")
        if len(set(names)) < len(names):
            twice = next(field for field in names if names.count(field) > 1)
            raise TopologyError(f"stream {name} declares the field {twice!r} twice")
        object.__setattr__(self, "fields", names)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "direct", direct)
        positions = MappingProxyType({field: position for position, field in enumerate(names)})
        object.__setattr__(self, "positions", positions)


def declared_streams(component: str, outputs: object) -> dict[str, Stream]:
    """The streams behind a component's `outputs`: a list of field names, or a list of streams."""
    if not isinstance(outputs, Sequence) or isinstance(outputs, str):
        raise TopologyError(f"the outputs of {component} must be a list of field names or of streams")
    streams = [output for output in outputs if isinstance(output, Stream)]
    if streams and len(streams) < len(outputs):
        raise TopologyError(
            f"the outputs of {component} mix field names and streams; write Stream(fields=[...])"
        )
    if not streams:
        streams = [Stream(outputs)] if outputs else []
    by_name = {stream.name: stream for stream in streams}
    if len(by_name) < len(streams):
        raise TopologyError(f"{component} declares two streams of the same name")
    reserved = next((name for name in by_name if name.startswith("__")), None)
    if reserved is not None:
        raise TopologyError(
            f"{component} declares the stream {reserved}; names with __ are the platform's own"
        )
    return by_name
