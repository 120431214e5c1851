"""Replaying the topic: Confluent's records, unknown fields, unreadable records, many subjects."""

import json
import time
from typing import Any

from millrace.registry.state import State


def replay(state: State, key: Any, value: Any) -> None:
    state.replay(json.dumps(key).encode(), None if value is None else json.dumps(value).encode())


def schema_record(subject: str, version: int, schema_id: int, **more: Any) -> tuple[Any, Any]:
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    value = {"subject": subject, "version": version, "id": schema_id, "schema": '"string"', "deleted": False}
    return key, {**value, **more}


def test_records_of_confluent_are_read() -> None:
    state = State()
    replay(state, {"keytype": "NOOP", "magic": 0}, None)
    replay(state, {"keytype": "CONFIG", "subject": None, "magic": 0}, {"compatibilityLevel": "FULL"})
    replay(state, {"keytype": "CONFIG", "subject": "s", "magic": 0}, {"compatibilityLevel": "NONE"})
    replay(state, {"keytype": "MODE", "subject": "s", "magic": 0}, {"mode": "READONLY"})
    replay(state, *schema_record("s", 1, 5, md5="AAAA", schemaTags=[{"schemaEntity": {}, "tags": ["PII"]}]))
    replay(state, *schema_record("s", 2, 6, schemaType="JSON", schema="{}"))
    replay(
        state,
        {"keytype": "DELETE_SUBJECT", "subject": "s", "magic": 0},
        {"subject": "s", "version": 1},
    )
    assert state.configs == {None: {"compatibilityLevel": "FULL"}, "s": {"compatibilityLevel": "NONE"}}
    assert state.modes == {"s": "READONLY"}
    assert [stored.version for stored in state.versions("s")] == [2]
    assert [stored.deleted for stored in state.versions("s", deleted=True)] == [True, False]
    assert state.versions("s")[0].schema_type == "JSON"
    assert state.next_id(".") == 7
    replay(state, {"keytype": "CLEAR_SUBJECT", "subject": "s", "magic": 0}, {"subject": "s"})
    assert [stored.version for stored in state.versions("s", deleted=True)] == [2]
    replay(state, {"keytype": "SCHEMA", "subject": "s", "version": 2, "magic": 1}, None)
    assert "s" not in state.subjects
    assert state.unreadable == 0


def test_unknown_fields_survive_a_rewrite() -> None:
    state = State()
    key, value = schema_record("s", 1, 5, metadata={"tags": {}}, ruleSet={"x": 1}, somethingNew=[1])
    replay(state, key, value)
    assert state.versions("s")[0].to_json() == value


def test_unknown_kinds_of_records_are_ignored() -> None:
    state = State()
    replay(state, {"keytype": "EXPORTER", "magic": 0}, {"x": 1})
    assert (state.subjects, state.unreadable) == ({}, 0)


def test_unreadable_records_change_nothing_and_stop_nothing() -> None:
    state = State()
    replay(state, *schema_record("s", 1, 5))
    before = state.versions("s")[0]
    for key, value in [
        (b"{", b"{}"),
        (None, b"{}"),
        (b"[]", b"{}"),
        (b"5", None),
        (b'{"keytype":"SCHEMA"}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b"not json"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b'{"id":"x","schema":5}'),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b'{"id":1}'),
        (b'{"keytype":"SCHEMA","subject":"s","version":"one","magic":1}', b'{"id":1,"schema":""}'),
        (b'{"keytype":"SCHEMA","subject":["s"],"version":1,"magic":1}', b'{"id":1,"schema":""}'),
        (b'{"keytype":"MODE","subject":"s"}', b'{"no":"mode"}'),
        (b'{"keytype":"MODE","subject":["s"]}', b'{"mode":"READONLY"}'),
        (b'{"keytype":"DELETE_SUBJECT","subject":"s"}', b'{"subject":"s"}'),
        (b'{"keytype":"SCHEMA","subject":"s","version":1}', b'{"id":1,"schema":"","references":[5]}'),
        (b"\xff\xfe", b"\xff"),
    ]:
        state.replay(key, value)
    assert state.unreadable == 15
    replay(state, *schema_record("t", 1, 6))
    assert state.versions("s") == [before]
    assert [stored.id for stored in state.versions("t")] == [6]


def test_versions_are_ordered_whatever_the_order_of_the_records() -> None:
    state = State()
    for version in (3, 1, 2):
        replay(state, *schema_record("s", version, version))
    assert [stored.version for stored in state.versions("s")] == [1, 2, 3]


def test_content_keeps_its_id_while_any_version_has_it() -> None:
    state = State()
    replay(state, *schema_record("s", 1, 5))
    replay(state, *schema_record("t", 1, 5))
    content = state.versions("s")[0].fingerprint
    replay(state, {"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}, None)
    assert state.id_of(content, ".") == 5
    replay(state, {"keytype": "SCHEMA", "subject": "t", "version": 1, "magic": 1}, None)
    assert state.id_of(content, ".") is None
    assert state.next_id(".") == 6


def test_ten_thousand_subjects_are_replayed_in_seconds() -> None:
    state, started = State(), time.process_time()
    for number in range(10_000):
        replay(state, *schema_record(f"subject-{number}", 1, number, schema=f'{{"n":{number}}}'))
    assert len(state.subjects) == 10_000
    # A second of CPU time here; the limit is for a busy machine.
    assert time.process_time() - started < 20
