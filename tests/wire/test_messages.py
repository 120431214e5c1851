"""Every message in every version: there and back, against another implementation, and cut short."""

import datetime
import importlib
import io
import pkgutil
import random
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import UnknownEntity, load_entity_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from millrace.steps import finish_at_once
from millrace.wire import messages
from millrace.wire.codec import MalformedMessage, decode, decoder_in_steps, encode, encoder_in_steps
from millrace.wire.schema import (
    ZERO_UUID,
    Array,
    Field,
    Fixed,
    Message,
    Nested,
    Request,
    Response,
    String,
    Struct,
    Type,
)

few = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
fewest = settings(few, max_examples=2)


def declared_messages() -> Iterator[type[Message]]:
    for module_info in pkgutil.iter_modules(messages.__path__):
        module = importlib.import_module(f"{messages.__name__}.{module_info.name}")
        for thing in vars(module).values():
            if isinstance(thing, type) and issubclass(thing, Message) and thing.__module__ == module.__name__:
                yield thing


MESSAGES = list(declared_messages())
every_message = pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)


# Random messages. Error codes and times are kept to what kio's richer types can hold.

NUMBER_RANGES = {
    "b": (-(2**7), 2**7 - 1),
    "h": (-(2**15), 2**15 - 1),
    "i": (-(2**31), 2**31 - 1),
    "q": (-(2**63), 2**63 - 1),
    "H": (0, 2**16 - 1),
    "I": (0, 2**32 - 1),
}
TIMES = st.integers(0, 2**31 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.just("long " * 40)
BLOBS = st.binary(max_size=5) | st.just(b"\x07" * 200)


def values(type: Type, name: str) -> st.SearchStrategy[Any]:
    match type:
        case Fixed(format="?"):
            return st.booleans()
        case Fixed(format="16s"):
            return st.binary(min_size=16, max_size=16)
        case Fixed() if "error_code" in name:
            return st.sampled_from([int(code) for code in ErrorCode])
        case Fixed() if name.endswith("_ms") or "timestamp" in name:
            return TIMES
        case Fixed(format="d"):
            return st.floats(allow_nan=False)
        case Fixed(format=format):
            return st.integers(*NUMBER_RANGES[format])
        case String():
            return TEXTS
        case Array(element=element):
            return st.lists(values(element, name), max_size=2)
        case Nested(struct=struct):
            return structs(struct)
        case _:
            return BLOBS


def field_values(field: Field, name: str) -> st.SearchStrategy[Any]:
    strategy = values(field.type, name)
    if field.tag is not None and isinstance(field.type, Nested):
        # Kafka leaves out a tagged struct that has nothing but defaults, as it does None.
        nothing = field.type.struct()
        strategy = strategy.filter(lambda value: value != nothing)
        return st.none() | strategy
    return st.none() | strategy if field.nullable else strategy


def structs(struct: type[Struct]) -> st.SearchStrategy[Any]:
    return st.builds(
        struct, **{name: field_values(field, name) for name, field in struct.wire_fields.items()}
    )


def as_of(struct: Any, version: int) -> Any:
    """A message after a round trip in a version: fields and nulls unknown to it become defaults."""
    return type(struct)(
        **{
            name: surviving(getattr(struct, name), field, version)
            for name, field in type(struct).wire_fields.items()
            if version in field.versions
        }
    )


def surviving(value: Any, field: Field, version: int) -> Any:
    if value is None and version not in field.nullable and field.tag is None:
        return [] if isinstance(field.type, Array) else field.type.zero
    if isinstance(value, list):
        return [as_of(element, version) if isinstance(element, Struct) else element for element in value]
    return as_of(value, version) if isinstance(value, Struct) else value


@every_message
@few
@given(data=st.data())
def test_random_messages_survive_the_wire_in_every_version(
    message: type[Message], data: st.DataObject
) -> None:
    drawn = data.draw(structs(message))
    for version in message.versions:
        sent = as_of(drawn, version)
        encoded = encode(sent, version)
        received, end = decode(message, version, b"before" + encoded + b"after", len(b"before"))
        assert received == sent
        assert end == len(b"before") + len(encoded)


@every_message
@fewest
@given(data=st.data())
def test_messages_are_the_same_bytes_and_values_in_steps(message: type[Message], data: st.DataObject) -> None:
    drawn = data.draw(structs(message))
    for version in {message.versions[0], message.versions[-1]}:
        sent = as_of(drawn, version)
        out, chunks = bytearray(), []
        rest = finish_at_once(encoder_in_steps(message, version)(sent, out, chunks))
        encoded = b"".join([*chunks, rest])
        assert encoded == encode(sent, version)
        decoded = finish_at_once(decoder_in_steps(message, version)(encoded, 0))
        assert decoded == decode(message, version, encoded)


@every_message
@fewest
@given(data=st.data())
def test_a_message_cut_short_anywhere_is_malformed(message: type[Message], data: st.DataObject) -> None:
    drawn = data.draw(structs(message))
    for version in {message.versions[0], message.versions[-1]}:
        encoded = encode(as_of(drawn, version), version)
        for length in range(len(encoded)):
            with pytest.raises(MalformedMessage, match=f"{message.__name__} v{version}: "):
                decode(message, version, memoryview(encoded)[:length])


@every_message
@fewest
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_noise_is_malformed_or_a_message_but_nothing_else(
    message: type[Message], data: st.DataObject, seed: int
) -> None:
    noise = random.Random(seed)
    newest = message.versions[-1]
    encoded = bytearray(encode(as_of(data.draw(structs(message)), newest), newest))
    for version in message.versions:
        for position in noise.choices(range(len(encoded)), k=3):
            encoded[position] = noise.randrange(256)
        try:
            _, end = decode(message, version, encoded)
        except MalformedMessage:
            continue
        assert end <= len(encoded)


# kio is an implementation of the protocol that shares nothing with ours; it has a class for each version.


def kio_entity(message: type[Message], version: int) -> Any:
    name = message.__module__.rpartition(".")[2]
    kind = {Request: EntityType.request, Response: EntityType.response}.get(message.__base__, EntityType.data)
    if kind is EntityType.data:
        name = next(
            (known for known in schema_name_map if known.replace("_", "") == message.__name__.lower()), ""
        )
    try:
        return load_entity_schema(name, version, kind)
    except UnknownEntity:
        return None


# Our brokers' own requests, and one that ended with Apache Kafka 4.
BETWEEN_BROKERS = ("change_metadata", "follow_metadata", "controlled_shutdown")
# Kafka has these names in the request and in the response.
NAMED_TWICE = {
    ("AlterPartitionRequest", "TopicData"): "AlteredTopic",
    ("AlterPartitionRequest", "PartitionData"): "AlteredPartition",
    ("AlterPartitionResponse", "TopicData"): "AlteredTopicResult",
    ("AlterPartitionResponse", "PartitionData"): "AlteredPartitionResult",
}

KNOWN_TO_KIO = [
    (message, entities)
    for message in MESSAGES
    if (entities := {version: kio_entity(message, version) for version in message.versions})
    and any(entities.values())
]
every_message_kio_knows = pytest.mark.parametrize(
    ("message", "entities"),
    [
        pytest.param(message, {v: e for v, e in entities.items() if e}, id=message.__name__)
        for message, entities in KNOWN_TO_KIO
    ],
)


def from_kio(value: Any, field: Field) -> Any:
    """A value of kio's as we would have it."""
    match value:
        case datetime.timedelta():
            return round(value.total_seconds() * 1000)
        case datetime.datetime():
            return round(value.timestamp() * 1000)
        case UUID():
            return value.bytes
        case None if field.type.zero == ZERO_UUID:
            return ZERO_UUID
        case None if isinstance(field.type, Fixed):
            return -1
        case tuple():
            assert isinstance(field.type, Array)
            element = Field(field.type.element, field.versions, range(0), None, None)
            return [from_kio(item, element) for item in value]
        case _ if isinstance(field.type, Nested) and value is not None:
            struct = struct_from_kio(field.type.struct, value)
            return None if field.tag is not None and struct == field.type.struct() else struct
        case _:
            return value


def struct_from_kio(struct: type[Struct], entity: Any) -> Any:
    names = {name: kio_name(name, entity) for name in struct.wire_fields}
    unknown = {field.name for field in fields(entity)} - set(names.values())
    assert not unknown
    return struct(
        **{
            name: from_kio(getattr(entity, theirs), struct.wire_fields[name])
            for name, theirs in names.items()
            if theirs is not None
        }
    )


def kio_name(name: str, entity: Any) -> str | None:
    candidates = (name, name.removesuffix("_ms"), f"{name}_")
    return next((theirs for theirs in candidates if hasattr(entity, theirs)), None)


@every_message_kio_knows
@few
@given(data=st.data())
def test_bytes_and_values_agree_with_kio(
    message: type[Message], entities: dict[int, Any], data: st.DataObject
) -> None:
    drawn = data.draw(structs(message))
    for version, entity in entities.items():
        ours = as_of(drawn, version)
        encoded = encode(ours, version)
        theirs, size = entity_reader(entity)(encoded, 0)
        assert size == len(encoded)
        assert struct_from_kio(message, theirs) == ours
        written = io.BytesIO()
        entity_writer(entity)(written, theirs)
        assert written.getvalue() == encoded


@every_message_kio_knows
def test_defaults_agree_with_kio(message: type[Message], entities: dict[int, Any]) -> None:
    ours = vars(sys.modules[message.__module__])
    for entity in entities.values():
        for kio_class in vars(sys.modules[entity.__module__]).values():
            if is_dataclass(kio_class) and kio_class.__module__ == entity.__module__:
                name = NAMED_TWICE.get((message.__name__, kio_class.__name__), kio_class.__name__)
                assert_same_defaults(ours[name], kio_class)


def assert_same_defaults(struct: type[Struct], kio_class: Any) -> None:
    defaults = {field.name: field.default for field in fields(kio_class) if field.default is not MISSING}
    for name, field in struct.wire_fields.items():
        theirs = kio_name(name, kio_class)
        if theirs in defaults:
            assert getattr(struct(), name) == from_kio(defaults[theirs], field), name


@every_message_kio_knows
def test_the_same_versions_are_flexible_as_in_kio(message: type[Message], entities: dict[int, Any]) -> None:
    for version, entity in entities.items():
        assert (version >= message.flexible_from) == entity.__flexible__


def test_kio_knows_every_version_of_every_api_we_declare() -> None:
    for message in MESSAGES:
        if (
            issubclass(message, Request | Response)
            and message.__module__.rpartition(".")[2] not in BETWEEN_BROKERS
        ):
            assert [version for version in message.versions if kio_entity(message, version) is None] == []
