"""Version 3: resources of the cluster, configuration, groups with lag, ACLs, streams of records."""

import base64
import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer
from tests.rest.conftest import Fails
from tests.served_app import DEADLINE, ServedApp

from millrace.rest.json_stream import BadStream, ObjectSplitter
from millrace.testing import Broker


def test_cluster_and_brokers_are_described(http: httpx.Client, cluster: str, fails: Fails) -> None:
    listed = http.get("/v3/clusters").json()
    assert listed["kind"] == "KafkaClusterList"
    found = http.get(cluster).json()
    assert found == listed["data"][0]
    assert found["kind"] == "KafkaCluster"
    assert found["metadata"]["self"].endswith(cluster)
    assert found["metadata"]["resource_name"] == f"crn:///kafka={found['cluster_id']}"
    brokers = httpx.get(found["brokers"]["related"]).json()
    assert brokers["kind"] == "KafkaBrokerList"
    broker = brokers["data"][0]
    assert httpx.get(broker["metadata"]["self"]).json() == broker
    assert httpx.get(broker["configs"]["related"]).json()["kind"] == "KafkaBrokerConfigList"
    assert httpx.get(found["controller"]["related"]).json() == broker
    fails(http.get("/v3/clusters/other"), 404)
    fails(http.get(f"{cluster}/brokers/99"), 404)
    assert http.get(f"/kafka{cluster}").json()["topics"]["related"].endswith(f"/kafka{cluster}/topics")


def test_topic_lives_from_creation_to_deletion(
    http: httpx.Client, cluster: str, topic: str, fails: Fails
) -> None:
    name = f"{topic}-made"
    body = {
        "topic_name": name,
        "partitions_count": 3,
        "replication_factor": 1,
        "configs": [{"name": "retention.ms", "value": "1000"}],
    }
    made = http.post(f"{cluster}/topics", json=body)
    assert made.status_code == 201
    assert made.headers["location"].endswith(f"{cluster}/topics/{name}")
    found = http.get(f"{cluster}/topics/{name}").json()
    assert (found["partitions_count"], found["replication_factor"], found["is_internal"]) == (3, 1, False)
    assert name in [each["topic_name"] for each in http.get(f"{cluster}/topics").json()["data"]]
    fails(http.post(f"{cluster}/topics", json=body), 40002)
    fails(http.post(f"{cluster}/topics", json={}), 40002)
    fails(http.post(f"{cluster}/topics", json={"topic_name": "x", "partitions_count": -1}), 40002)
    assert (
        http.patch(f"{cluster}/topics/{name}", json={"partitions_count": 4}).json()["partitions_count"] == 4
    )
    assert http.delete(f"{cluster}/topics/{name}").status_code == 204
    fails(http.get(f"{cluster}/topics/{name}"), 40403)
    fails(http.delete(f"{cluster}/topics/{name}"), 40403)


def test_topic_is_only_validated_on_request(
    http: httpx.Client, cluster: str, topic: str, fails: Fails
) -> None:
    body = {"topic_name": f"{topic}-never", "validate_only": True}
    assert http.post(f"{cluster}/topics", json=body).status_code == 200
    fails(http.get(f"{cluster}/topics/{topic}-never"), 40403)


def test_partitions_and_replicas_are_linked(
    http: httpx.Client, cluster: str, topic: str, fails: Fails
) -> None:
    partitions = http.get(f"{cluster}/topics/{topic}/partitions").json()
    assert [each["partition_id"] for each in partitions["data"]] == [0, 1]
    partition = httpx.get(partitions["data"][1]["metadata"]["self"]).json()
    assert partition == partitions["data"][1]
    replicas = httpx.get(partition["replicas"]["related"]).json()["data"]
    assert (replicas[0]["is_leader"], replicas[0]["is_in_sync"]) == (True, True)
    assert httpx.get(partition["leader"]["related"]).json() == replicas[0]
    of_broker = http.get(f"{cluster}/brokers/{replicas[0]['broker_id']}/partition-replicas").json()["data"]
    assert replicas[0] in of_broker
    fails(http.get(f"{cluster}/topics/{topic}/partitions/5"), 404)
    assert http.get(f"{cluster}/topics/-/partitions/-/reassignment").json()["data"] == []
    assert http.get(f"{cluster}/topics/{topic}/partitions/-/reassignment").json()["data"] == []
    fails(http.get(f"{cluster}/topics/{topic}/partitions/0/reassignment"), 404)


def test_configs_are_described_and_changed(
    http: httpx.Client, cluster: str, topic: str, fails: Fails
) -> None:
    url = f"{cluster}/topics/{topic}/configs"
    names = [each["name"] for each in http.get(url).json()["data"]]
    assert "retention.ms" in names
    before = http.get(f"{url}/retention.ms").json()
    assert (before["kind"], before["is_default"], before["source"]) == (
        "KafkaTopicConfig",
        True,
        "DEFAULT_CONFIG",
    )
    assert http.put(f"{url}/retention.ms", json={"value": "5000"}).status_code == 204
    after = http.get(f"{url}/retention.ms").json()
    assert (after["value"], after["is_default"]) == ("5000", False)
    assert http.delete(f"{url}/retention.ms").status_code == 204
    assert http.get(f"{url}/retention.ms").json() == before
    changes = [
        {"name": "retention.ms", "value": "7000"},
        {"name": "cleanup.policy", "value": "compact", "operation": "SET"},
    ]
    assert http.post(f"{url}:alter", json={"data": changes}).status_code == 204
    assert http.get(f"{url}/cleanup.policy").json()["value"] == "compact"
    undo = {"data": [{"name": "retention.ms", "operation": "DELETE"}]}
    assert http.post(f"{url}:alter", json=undo).status_code == 204
    assert http.get(f"{url}/retention.ms").json() == before
    fails(http.get(f"{url}/no.such"), 404)
    fails(http.put(f"{url}/retention.ms", json={"value": "soon"}), 400)
    fails(http.post(f"{url}:alter", json={"data": [{"name": "x", "operation": "MULTIPLY"}]}), 40002)
    assert http.get(f"{cluster}/broker-configs").json()["kind"] == "KafkaClusterConfigList"


@pytest.fixture
def consumer(rest_broker: Broker, topic: str) -> Iterator[Consumer]:
    made = Consumer(
        {
            "bootstrap.servers": rest_broker.bootstrap,
            "group.id": f"group/{topic}",
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    made.subscribe([topic])
    yield made
    made.close()


def test_groups_are_described_with_their_lag(
    http: httpx.Client, cluster: str, topic: str, consumer: Consumer, fails: Fails
) -> None:
    for number in range(5):
        http.post(f"{cluster}/topics/{topic}/records", json=_json(number, partition_id=0))
    messages = consumer.consume(2, DEADLINE)
    consumer.commit(messages[-1], asynchronous=False)
    group = f"{cluster}/consumer-groups/group%2F{topic}"
    found = http.get(group).json()
    assert (found["consumer_group_id"], found["state"]) == (f"group/{topic}", "STABLE")
    listed = http.get(f"{cluster}/consumer-groups").json()["data"]
    assert f"group/{topic}" in [each["consumer_group_id"] for each in listed]
    members = http.get(f"{group}/consumers").json()["data"]
    assert members[0]["client_id"] == "reader"
    member = httpx.get(members[0]["metadata"]["self"]).json()
    assert member == members[0]
    assigned = httpx.get(member["assignments"]["related"]).json()["data"]
    assert [(each["topic_name"], each["partition_id"]) for each in assigned] == [(topic, 0), (topic, 1)]
    summary = http.get(f"{group}/lag-summary").json()
    assert (summary["total_lag"], summary["max_lag"], summary["max_lag_topic_name"]) == (3, 3, topic)
    assert summary["max_lag_client_id"] == "reader"
    lags = http.get(f"{group}/lags").json()["data"]
    assert [(lag["current_offset"], lag["log_end_offset"], lag["lag"]) for lag in lags] == [(2, 5, 3)]
    assert http.get(f"{group}/lags/{topic}/partitions/0").json() == lags[0]
    fails(http.get(f"{group}/lags/{topic}/partitions/1"), 404)
    fails(http.get(f"{cluster}/consumer-groups/missing"), 404)


# Records


def _json(value: Any, **more: Any) -> dict[str, Any]:
    return {"value": {"type": "JSON", "data": value}, **more}


def results(response: httpx.Response) -> list[Any]:
    assert response.status_code == 200
    return [json.loads(line) for line in response.text.splitlines()]


def stored(broker: Broker, topic: str, count: int) -> list[Any]:
    reader = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": f"{topic}-r", "auto.offset.reset": "earliest"}
    )
    try:
        reader.subscribe([topic])
        return reader.consume(count, DEADLINE)
    finally:
        reader.close()


def test_record_is_produced_with_everything(
    http: httpx.Client, rest_broker: Broker, cluster: str, topic: str
) -> None:
    record = {
        "partition_id": 1,
        "headers": [{"name": "h", "value": base64.b64encode(b"\0x").decode()}, {"name": "n"}],
        "key": {"type": "BINARY", "data": base64.b64encode(b"key").decode()},
        "value": {"type": "STRING", "data": "grüß"},
        "timestamp": "2026-01-02T03:04:05.006Z",
    }
    (result,) = results(http.post(f"{cluster}/topics/{topic}/records", json=record))
    assert result["error_code"] == 200
    assert (result["topic_name"], result["partition_id"], result["offset"]) == (topic, 1, 0)
    assert result["timestamp"] == "2026-01-02T03:04:05.006Z"
    assert result["key"] == {"type": "BINARY", "size": 3}
    assert result["value"] == {"type": "STRING", "size": 6}
    (message,) = stored(rest_broker, topic, 1)
    assert (message.key(), message.value()) == (b"key", "grüß".encode())
    assert message.headers() == [("h", b"\0x"), ("n", None)]


def test_stream_of_records_has_a_result_for_each_in_order(
    http: httpx.Client, cluster: str, topic: str
) -> None:
    def pieces() -> Iterator[bytes]:
        data = b"\n".join(
            json.dumps(_json({"n": n, "}": '{"\\'}, partition_id=0)).encode() for n in range(700)
        )
        for start in range(0, len(data), 997):
            yield data[start : start + 997]

    found = results(http.post(f"{cluster}/topics/{topic}/records", content=pieces()))
    assert [result["offset"] for result in found] == list(range(700))


def test_results_come_while_the_request_is_still_open(rest: ServedApp, cluster: str, topic: str) -> None:
    """A client sends a record, reads its result, and sends the next one in the same request."""
    host, port = rest.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=DEADLINE) as connection:
        path = f"{cluster}/topics/{topic}/records"
        head = f"POST {path} HTTP/1.1\r\nhost: {host}:{port}\r\ntransfer-encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())
        received = b""
        for number in range(3):
            data = json.dumps(_json(number, partition_id=0)).encode()
            connection.sendall(b"%x\r\n%s\r\n" % (len(data), data))
            while b'"offset":%d,' % number not in received:
                received += connection.recv(65536)
        connection.sendall(b"0\r\n\r\n")
        while not received.endswith(b"\r\n0\r\n\r\n"):
            received += connection.recv(65536)
    assert received.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "record",
    [
        5,
        {"value": 5},
        {"value": {"type": "XML", "data": 1}},
        {"value": {"type": "BINARY", "data": "!"}},
        {"value": {"type": "STRING", "data": 5}},
        {"partition_id": "x"},
        {"headers": 5},
        {"headers": [{"name": "h", "value": "!"}]},
        {"timestamp": "yesterday"},
        {"value": {"schema_id": 99999, "data": 1}},
        {"value": {"schema": '"string"', "data": "x"}},
        {"value": {"type": "AVRO", "schema": "{", "data": "x"}},
    ],
)
def test_bad_record_has_an_error_and_the_next_one_is_produced(
    http: httpx.Client, cluster: str, topic: str, record: Any
) -> None:
    good = json.dumps(_json(1, partition_id=0))
    text = json.dumps(record) if isinstance(record, dict) else '{"value": 5}'
    found = results(http.post(f"{cluster}/topics/{topic}/records", content=f"{text}\n{good}"))
    assert found[0]["error_code"] != 200
    assert found[0]["message"]
    assert found[1]["error_code"] == 200


def test_stream_that_is_not_json_ends_with_an_error(http: httpx.Client, cluster: str, topic: str) -> None:
    good = json.dumps(_json(1))
    found = results(http.post(f"{cluster}/topics/{topic}/records", content=f"{good} nonsense {good}"))
    assert [result["error_code"] for result in found] == [200, 400] or found[0]["error_code"] == 400
    cut = results(http.post(f"{cluster}/topics/{topic}/records", content=good[:-3]))
    assert cut[0]["error_code"] == 400


def test_unknown_partition_is_an_error_of_its_record(http: httpx.Client, cluster: str, topic: str) -> None:
    record = _json(1, partition_id=99)
    (result,) = results(http.post(f"{cluster}/topics/{topic}/records", json=record))
    assert result["error_code"] in (400, 503)


def test_records_with_schemas_are_framed(
    http: httpx.Client, rest_broker: Broker, cluster: str, topic: str
) -> None:
    url = f"{cluster}/topics/{topic}/records"
    (first,) = results(http.post(url, json={"value": {"type": "AVRO", "schema": '"string"', "data": "hi"}}))
    schema_id = first["value"]["schema_id"]
    (second,) = results(http.post(url, json={"value": {"schema_id": schema_id, "data": "hi"}}))
    (third,) = results(http.post(url, json={"value": {"schema_version": 1, "data": "hi"}}))
    assert [result["error_code"] for result in (first, second, third)] == [200] * 3
    framed = b"\0" + schema_id.to_bytes(4, "big") + b"\x04hi"
    assert [message.value() for message in stored(rest_broker, topic, 3)] == [framed] * 3


def test_batch_reports_successes_and_failures(
    http: httpx.Client, cluster: str, topic: str, fails: Fails
) -> None:
    url = f"{cluster}/topics/{topic}/records:batch"
    entries = [{"id": "1", **_json("a")}, {"id": "2", "value": {"type": "X"}}, {"id": "3", **_json("b")}]
    response = http.post(url, json={"entries": entries})
    assert response.status_code == 207
    assert [each["id"] for each in response.json()["successes"]] == ["1", "3"]
    assert [each["id"] for each in response.json()["failures"]] == ["2"]
    fails(http.post(url, json={"entries": []}), 42208)
    fails(http.post(url, json={"entries": [entries[0], entries[0]]}), 42208)
    fails(http.post(url, json={"entries": [5]}), 42206)


def test_stream_is_split_wherever_it_is_cut() -> None:
    data = b' {"a":"}{\\"\\\\"},\n{"b":[{},{"c":1}]}{} '
    whole = [b'{"a":"}{\\"\\\\"}', b'{"b":[{},{"c":1}]}', b"{}"]
    for size in range(1, len(data) + 1):
        splitter, found = ObjectSplitter(), []
        for start in range(0, len(data), size):
            found += splitter.feed(data[start : start + size])
        splitter.finish()
        assert found == whole
    with pytest.raises(BadStream):
        ObjectSplitter(limit=10).feed(b'{"x":"' + b"y" * 20)
    with pytest.raises(BadStream):
        ObjectSplitter().feed(b"[]")


# ACLs


def test_acls_are_refused_or_kept_as_the_cluster_says(http: httpx.Client, cluster: str, fails: Fails) -> None:
    acl = {
        "resource_type": "TOPIC",
        "resource_name": "secret",
        "pattern_type": "LITERAL",
        "principal": "User:ann",
        "host": "*",
        "operation": "READ",
        "permission": "ALLOW",
    }
    fails(http.post(f"{cluster}/acls", json={**acl, "operation": "FLY"}), 40002)
    fails(http.post(f"{cluster}/acls", json={"resource_type": "TOPIC"}), 40002)
    fails(http.post(f"{cluster}/acls:batch", json={"data": 5}), 40002)
    fails(http.delete(f"{cluster}/acls"), 40002)
    created = http.post(f"{cluster}/acls", json=acl)
    if created.status_code != 201:
        # A cluster without an authorizer has no ACLs.
        assert "disabled" in created.json()["message"].lower() or created.json()["error_code"] == 400
        return
    found = http.get(f"{cluster}/acls", params={"resource_name": "secret", "resource_type": "TOPIC"}).json()
    assert [{name: each[name] for name in acl} for each in found["data"]] == [acl]
    removed = http.delete(
        f"{cluster}/acls", params={"resource_name": "secret", "resource_type": "TOPIC"}
    ).json()
    assert len(removed["data"]) == 1
