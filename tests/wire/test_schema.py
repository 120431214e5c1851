import uuid as python_uuid
from base64 import urlsafe_b64encode

import pytest

from millrace.wire.schema import (
    ZERO_UUID,
    Message,
    Request,
    Response,
    Struct,
    array,
    int16,
    int32,
    nested,
    parse_versions,
    records,
    string,
    uuid,
    uuid_from_text,
    uuid_to_text,
)


class Inner(Struct):
    number: int = int32(default=-1)


class Ask(Request, key=-7, versions="2-5", flexible="4+"):
    name: str | None = string("3+", nullable="4+")
    inner: Inner = nested(Inner)
    absent: Inner | None = nested(Inner, "4+", tag=0)
    inners: list[Inner] = array(Inner)
    topic_id: bytes = uuid()
    records: object = records()


class Answer(Response, to=Ask):
    error_code: int = int16()


@pytest.fixture(autouse=True)
def forget_the_request() -> None:
    Request.by_key.pop(-7, None)


def test_versions_are_read_as_kafka_writes_them() -> None:
    assert 2**15 - 1 in parse_versions("3+")
    assert list(parse_versions("3-5")) == [3, 4, 5]
    assert list(parse_versions("3")) == [3]
    assert not parse_versions("none")


def test_every_field_has_a_default() -> None:
    ask = Ask()
    assert (ask.name, ask.absent, ask.inners, ask.topic_id, ask.records) == ("", None, [], ZERO_UUID, None)
    assert ask.inner == Inner(number=-1)


def test_mutable_defaults_are_not_shared() -> None:
    first, second = Ask(), Ask()
    first.inners.append(Inner())
    first.inner.number = 5
    assert second == Ask()


def test_messages_have_their_declared_fields_and_no_others() -> None:
    with pytest.raises(AttributeError):
        Inner().misspelt = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        Inner(misspelt=1)  # type: ignore[call-arg]


def test_messages_compare_by_value_and_type() -> None:
    class Other(Struct):
        number: int = int32(default=-1)

    assert Inner(3) == Inner(3)
    assert Inner(3) != Inner(4)
    assert Inner(3) != Other(3)
    assert repr(Ask(name="n", inners=[Inner(3)])).startswith(
        "Ask(name='n', inner=Inner(number=-1), absent=None"
    )


def test_a_request_knows_its_facts_and_its_response() -> None:
    assert Ask.api_key == -7
    assert Ask.versions == range(2, 6)
    assert Ask.flexible_from == 4
    assert Ask.response is Answer
    assert Answer.request is Ask
    assert Answer.versions == Ask.versions
    assert Answer.flexible_from == 4


def test_a_request_is_found_by_its_key() -> None:
    class Found(Request, key=-7, versions="0"):
        number: int = int32()

    assert Request.by_key[-7] is Found


def test_a_message_without_flexible_versions_is_never_flexible() -> None:
    class Rigid(Message, versions="0-2"):
        number: int = int32()

    assert Rigid.flexible_from > 2**15 - 1


def test_an_unknown_fact_is_refused() -> None:
    with pytest.raises(TypeError):

        class Odd(Message, verzions="0-2"):
            number: int = int32()


def test_ids_are_written_in_url_safe_base64_without_padding() -> None:
    some_id = python_uuid.UUID("b8e5c7f0-ffff-4bbf-8a51-fe0123456789").bytes
    text = uuid_to_text(some_id)
    assert text == urlsafe_b64encode(some_id).decode()[:22]
    assert uuid_from_text(text) == some_id
    assert uuid_to_text(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"


@pytest.mark.parametrize("text", ["", "AAAA", "A" * 23, "!" * 22, "A" * 44])
def test_text_that_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        uuid_from_text(text)
