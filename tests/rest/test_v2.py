"""Version 2: metadata, producing in every format, and the life of consumer instances."""

import base64
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from tests.rest.conftest import Fails
from tests.served_app import DEADLINE, ServedApp

from millrace.rest.app import Options, rest_app
from millrace.testing import Broker

V2 = "application/vnd.kafka.v2+json"
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
PROTO = 'syntax = "proto3"; message Order { int32 id = 1; string name = 2; }'


def kind(name: str) -> str:
    return f"application/vnd.kafka.{name}.v2+json"


def produce(http: httpx.Client, path: str, name: str, body: Any) -> httpx.Response:
    return http.post(path, content=json.dumps(body), headers={"content-type": kind(name)})


def create(http: httpx.Client, group: str, **settings: Any) -> str:
    settings = {"auto.offset.reset": "earliest", "format": "json", **settings}
    response = http.post(f"/consumers/{group}", json=settings, headers={"content-type": V2})
    assert response.status_code == 200, response.text
    uri: str = response.json()["base_uri"]
    return uri


def read(http: httpx.Client, uri: str, name: str, count: int, **query: Any) -> list[Any]:
    """Read until so many records have come."""
    found: list[Any] = []
    deadline = time.monotonic() + DEADLINE
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records"
        response = http.get(f"{uri}/records", headers={"accept": kind(name)}, params=query)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"] == kind(name)
        found += response.json()
    return found


# Metadata


def test_topics_partitions_and_brokers_are_described(http: httpx.Client, topic: str, fails: Fails) -> None:
    assert topic in http.get("/topics").json()
    found = http.get(f"/topics/{topic}").json()
    assert found["name"] == topic
    assert found["configs"]["cleanup.policy"] == "delete"
    assert [partition["partition"] for partition in found["partitions"]] == [0, 1]
    brokers = http.get("/brokers").json()["brokers"]
    replica = {"broker": brokers[0], "leader": True, "in_sync": True}
    partition = {"partition": 1, "leader": brokers[0], "replicas": [replica]}
    assert http.get(f"/topics/{topic}/partitions/1").json() == partition
    assert http.get(f"/topics/{topic}/partitions").json()[1] == partition
    offsets = http.get(f"/topics/{topic}/partitions/0/offsets")
    assert offsets.json() == {"beginning_offset": 0, "end_offset": 0}
    assert offsets.headers["content-type"] == V2
    fails(http.get("/topics/missing"), 40401)
    fails(http.get(f"/topics/{topic}/partitions/9"), 40402)
    fails(http.get(f"/topics/{topic}/partitions/x"), 40402)


# Producing


def test_binary_records_are_produced_with_keys_and_partitions(http: httpx.Client, topic: str) -> None:
    records = [
        {"key": base64.b64encode(b"k").decode(), "value": base64.b64encode(b"\0\xff").decode()},
        {"value": base64.b64encode(b"one").decode(), "partition": 1},
        {"value": None, "partition": 0},
    ]
    body = produce(http, f"/topics/{topic}", "binary", {"records": records}).json()
    assert [offset["error_code"] for offset in body["offsets"]] == [None] * 3
    assert [offset["partition"] for offset in body["offsets"]][1:] == [1, 0]
    assert body["key_schema_id"] is body["value_schema_id"] is None
    uri = create(http, f"group-{topic}", format="binary")
    http.post(f"{uri}/subscription", json={"topics": [topic]})
    found = read(http, uri, "binary", 3)
    assert sorted(str(record["value"]) for record in found) == sorted(
        str(record["value"]) for record in records
    )
    http.delete(uri)


def test_records_go_to_the_partition_of_the_path(http: httpx.Client, topic: str, fails: Fails) -> None:
    body = {"records": [{"value": {"n": n}} for n in range(3)]}
    offsets = produce(http, f"/topics/{topic}/partitions/1", "json", body).json()["offsets"]
    assert [(offset["partition"], offset["offset"]) for offset in offsets] == [(1, 0), (1, 1), (1, 2)]
    fails(produce(http, f"/topics/{topic}/partitions/7", "json", body), 40402)


@pytest.mark.parametrize(
    ("name", "schema", "values"),
    [
        ("avro", json.dumps(ORDER), [{"id": 1}, {"id": 2}]),
        ("jsonschema", '{"type":"object","properties":{"id":{"type":"integer"}}}', [{"id": 1}, {"id": 2}]),
        ("protobuf", PROTO, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]),
    ],
)
def test_records_with_schemas_make_a_round_trip(
    http: httpx.Client, topic: str, fails: Fails, name: str, schema: str, values: list[Any]
) -> None:
    body: dict[str, Any] = {"value_schema": schema, "records": [{"value": value} for value in values[:1]]}
    first = produce(http, f"/topics/{topic}", name, body)
    assert first.status_code == 200, first.text
    schema_id = first.json()["value_schema_id"]
    body = {"value_schema_id": schema_id, "records": [{"value": value} for value in values[1:]]}
    assert produce(http, f"/topics/{topic}", name, body).json()["value_schema_id"] == schema_id
    uri = create(http, f"group-{topic}", format=name)
    http.post(f"{uri}/subscription", json={"topics": [topic]})
    found = [record["value"] for record in read(http, uri, name, 2)]
    assert sorted(found, key=lambda value: value["id"]) == values
    http.delete(uri)
    bad = {"value_schema_id": schema_id, "records": [{"value": {"id": "x"}}]}
    fails(produce(http, f"/topics/{topic}", name, bad), 42203)
    fails(produce(http, f"/topics/{topic}", name, {"records": [{"value": values[0]}]}), 42202)
    keyed = {"value_schema_id": schema_id, "records": [{"key": values[0], "value": values[0]}]}
    fails(produce(http, f"/topics/{topic}", name, keyed), 42201)
    fails(produce(http, f"/topics/{topic}", name, {**body, "value_schema_id": 9999}), 42205)
    fails(produce(http, f"/topics/{topic}", name, {"value_schema": "{", "records": [{"value": 1}]}), 42205)


def test_nullable_avro_fields_name_their_branch(http: httpx.Client, topic: str) -> None:
    schema = {"type": "record", "name": "N", "fields": [{"name": "s", "type": ["null", "string"]}]}
    values = [{"s": {"string": "x"}}, {"s": None}]
    body = {"value_schema": json.dumps(schema), "records": [{"value": value} for value in values]}
    assert produce(http, f"/topics/{topic}/partitions/0", "avro", body).status_code == 200
    uri = create(http, f"group-{topic}", format="avro")
    http.post(f"{uri}/assignments", json={"partitions": [{"topic": topic, "partition": 0}]})
    assert [record["value"] for record in read(http, uri, "avro", 2)] == values
    http.delete(uri)


def test_bad_requests_are_refused_and_produce_nothing(http: httpx.Client, topic: str, fails: Fails) -> None:
    url = f"/topics/{topic}"
    fails(produce(http, url, "json", {"records": []}), 42206)
    fails(produce(http, url, "json", {"records": 5}), 42206)
    fails(produce(http, url, "json", {"records": [5]}), 42206)
    fails(produce(http, url, "json", {"records": [{"value": 1, "partition": 9}]}), 40402)
    fails(produce(http, url, "binary", {"records": [{"value": "not base64!"}]}), 42203)
    fails(produce(http, url, "binary", {"records": [{"value": "AAAA"}, {"value": 5}]}), 42203)
    fails(produce(http, "/topics/missing", "json", {"records": [{"value": 1}]}), 40401)
    fails(http.post(url, content=b"{", headers={"content-type": kind("json")}), 400)
    fails(http.post(url, content=b"{}", headers={"content-type": "text/plain"}), 415)
    fails(http.post(url, content=b"{}", headers={"content-type": kind("xml")}), 415)
    for partition in (0, 1):
        assert http.get(f"{url}/partitions/{partition}/offsets").json()["end_offset"] == 0


def test_many_small_calls_share_one_producer(http: httpx.Client, topic: str) -> None:
    def call(number: int) -> int:
        body = {"records": [{"value": number, "partition": 0}]}
        offsets = produce(http, f"/topics/{topic}", "json", body).json()["offsets"]
        return int(offsets[0]["offset"])

    with ThreadPoolExecutor(16) as threads:
        offsets = list(threads.map(call, range(300)))
    assert sorted(offsets) == list(range(300))


# Consumer instances


@pytest.fixture
def filled(http: httpx.Client, topic: str) -> str:
    for partition in (0, 1):
        body = {"records": [{"value": {"p": partition, "n": n}} for n in range(5)]}
        produce(http, f"/topics/{topic}/partitions/{partition}", "json", body)
    return topic


@pytest.fixture
def uri(http: httpx.Client, filled: str) -> Iterator[str]:
    made = create(http, f"group-{filled}", name="me", **{"auto.commit.enable": "false"})
    yield made
    http.delete(made)


def test_instance_lives_from_creation_to_deletion(
    http: httpx.Client, filled: str, uri: str, fails: Fails
) -> None:
    assert uri.endswith(f"/consumers/group-{filled}/instances/me")
    fails(http.post(f"/consumers/group-{filled}", json={"name": "me"}), 40902)
    assert http.post(f"{uri}/subscription", json={"topics": [filled]}).status_code == 204
    assert http.get(f"{uri}/subscription").json() == {"topics": [filled]}
    found = read(http, uri, "json", 10)
    assert {(record["partition"], record["offset"]) for record in found} == {
        (partition, n) for partition in (0, 1) for n in range(5)
    }
    assert set(found[0]) == {"topic", "key", "value", "partition", "offset"}
    assert len(http.get(f"{uri}/assignments").json()["partitions"]) == 2
    assert http.post(f"{uri}/offsets").status_code == 200
    committed = http.request(
        "GET", f"{uri}/offsets", json={"partitions": [{"topic": filled, "partition": 0}]}
    ).json()
    assert committed["offsets"] == [{"topic": filled, "partition": 0, "offset": 5, "metadata": ""}]
    assert http.delete(f"{uri}/subscription").status_code == 204
    assert http.get(f"{uri}/subscription").json() == {"topics": []}
    assert http.delete(uri).status_code == 204
    message = fails(http.get(f"{uri}/records"), 40403)
    assert "Create it again" in message
    fails(http.delete(uri), 40403)


def test_next_instance_continues_where_the_last_one_committed(
    http: httpx.Client, filled: str, uri: str
) -> None:
    http.post(f"{uri}/subscription", json={"topics": [filled]})
    read(http, uri, "json", 10)
    # A client names the last record that it has handled.
    offsets = [{"topic": filled, "partition": 0, "offset": 2}, {"topic": filled, "partition": 1, "offset": 4}]
    assert http.post(f"{uri}/offsets", json={"offsets": offsets}).status_code == 200
    http.delete(uri)
    after = create(http, f"group-{filled}")
    http.post(f"{after}/subscription", json={"topics": [filled]})
    found = read(http, after, "json", 2)
    assert [(record["partition"], record["offset"]) for record in found] == [(0, 3), (0, 4)]
    http.delete(after)


def test_assigned_instance_seeks(http: httpx.Client, filled: str, uri: str, fails: Fails) -> None:
    here = {"topic": filled, "partition": 0}
    assert http.post(f"{uri}/assignments", json={"partitions": [here]}).status_code == 204
    assert http.get(f"{uri}/assignments").json() == {"partitions": [here]}
    assert len(read(http, uri, "json", 5)) == 5
    assert http.post(f"{uri}/positions", json={"offsets": [{**here, "offset": 3}]}).status_code == 204
    assert [record["offset"] for record in read(http, uri, "json", 2)] == [3, 4]
    assert http.post(f"{uri}/positions/beginning", json={"partitions": [here]}).status_code == 204
    assert read(http, uri, "json", 5)[0]["offset"] == 0
    assert http.post(f"{uri}/positions/end", json={"partitions": [here]}).status_code == 204
    assert http.get(f"{uri}/records?timeout=100", headers={"accept": kind("json")}).json() == []
    fails(http.post(f"{uri}/subscription", json={"topics": [filled]}), 40903)
    fails(http.post(f"{uri}/positions", json={"offsets": [{**here, "partition": 1, "offset": 0}]}), 40903)


def test_pattern_subscribes_to_topics(http: httpx.Client, filled: str, uri: str) -> None:
    assert http.post(f"{uri}/subscription", json={"topic_pattern": f"{filled}.*"}).status_code == 204
    assert len(read(http, uri, "json", 10)) >= 10


def test_max_bytes_limits_a_response(http: httpx.Client, filled: str, uri: str) -> None:
    http.post(f"{uri}/subscription", json={"topics": [filled]})
    first = read(http, uri, "json", 1, max_bytes=1)
    assert len(first) == 1


def test_instance_refuses_what_does_not_fit(http: httpx.Client, filled: str, uri: str, fails: Fails) -> None:
    fails(http.get(f"{uri}/records", headers={"accept": kind("json")}), 40903)
    http.post(f"{uri}/subscription", json={"topics": [filled]})
    fails(http.get(f"{uri}/records", headers={"accept": kind("binary")}), 40601)
    fails(http.get(f"{uri}/records?timeout=x", headers={"accept": kind("json")}), 42206)
    fails(http.post(f"{uri}/assignments", json={"partitions": [{"topic": filled, "partition": 0}]}), 40903)
    fails(http.post(f"{uri}/subscription", json={}), 42206)
    fails(http.post(f"{uri}/subscription", json={"topics": "x"}), 42206)
    fails(http.post(f"{uri}/offsets", json={"offsets": [{"topic": filled}]}), 42206)
    group = f"/consumers/group-{filled}"
    fails(http.post(group, json={"format": "xml"}), 42204)
    fails(http.post(group, json={"auto.offset.reset": "sideways"}), 42204)
    fails(http.post(group, json={"auto.commit.enable": "perhaps"}), 42204)
    fails(http.post(group, json={"consumer.request.timeout.ms": "soon"}), 42204)
    fails(http.post(group, json={"name": 5}), 42204)


def test_record_that_is_not_json_is_reported_and_loses_no_other(
    http: httpx.Client, topic: str, fails: Fails
) -> None:
    values = [b"1", b"2", b"\xff{", b"4"]
    body = {"records": [{"value": base64.b64encode(value).decode()} for value in values]}
    produce(http, f"/topics/{topic}/partitions/0", "binary", body)
    uri = create(http, f"group-{topic}")
    http.post(f"{uri}/assignments", json={"partitions": [{"topic": topic, "partition": 0}]})
    assert [record["value"] for record in read(http, uri, "json", 2)] == [1, 2]
    for _ in range(2):
        response = http.get(f"{uri}/records?timeout={int(DEADLINE * 900)}", headers={"accept": kind("json")})
        assert f"topic {topic}, partition 0, offset 2" in fails(response, 42203)
    http.post(f"{uri}/positions", json={"offsets": [{"topic": topic, "partition": 0, "offset": 3}]})
    assert [record["value"] for record in read(http, uri, "json", 1)] == [4]
    http.delete(uri)


def test_idle_instance_is_closed_and_says_so(rest_broker: Broker, topic: str, fails: Fails) -> None:
    served = ServedApp(lambda _: rest_app(Options(rest_broker.bootstrap, idle_seconds=1)))
    try:
        uri = create(served.http, f"group-{topic}")
        served.http.post(f"{uri}/subscription", json={"topics": [topic]})
        instances = served.app.state.proxy.instances
        deadline = time.monotonic() + DEADLINE
        while len(instances):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert "idling" in fails(served.http.get(f"{uri}/records"), 40403)
        # Without a registry, formats with schemas are refused and not guessed.
        body = {"value_schema": '"string"', "records": [{"value": "x"}]}
        fails(produce(served.http, f"/topics/{topic}", "avro", body), 50101)
    finally:
        served.close()
