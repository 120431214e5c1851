"""Both services over an Apache Kafka broker: they know the log by its protocol only."""

import json
import time
from collections.abc import Iterator

import httpx
import pytest
from tests import jvm
from tests.served_app import DEADLINE, ServedApp

from millrace.jars import JarsUnavailable, apache_kafka_classpath
from millrace.registry.app import registry_app
from millrace.registry.leadership import Identity
from millrace.registry.registry import Options as RegistryOptions
from millrace.rest.app import Options, rest_app
from millrace.testing.apache_kafka import ApacheKafka

pytestmark = [pytest.mark.proof, pytest.mark.java]


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    try:
        apache_kafka_classpath()
    except JarsUnavailable as error:
        pytest.skip(str(error))
    with ApacheKafka(jvm_options=jvm.BROKER, start_timeout_seconds=180) as running:
        yield running


def registry(kafka: ApacheKafka) -> ServedApp:
    return ServedApp(lambda port: registry_app(RegistryOptions(kafka.bootstrap, Identity("127.0.0.1", port))))


def schema(size: int) -> dict[str, str]:
    return {"schema": json.dumps({"type": "fixed", "name": "F", "size": size})}


def test_registries_elect_a_leader_and_take_over(kafka: ApacheKafka) -> None:
    both = [registry(kafka), registry(kafka)]
    try:
        ids = [
            served.http.post(f"/subjects/s{size}/versions", json=schema(size)).json()["id"]
            for size in range(1, 11)
            for served in both
        ]
        assert ids == [number for number in range(1, 11) for _ in both]
        leader = next(served for served in both if served.app.state.registry.is_leader)
        (other,) = (served for served in both if served is not leader)
        leader.close()
        both.remove(leader)
        response = other.http.post("/subjects/after/versions", json=schema(99))
        deadline = time.monotonic() + DEADLINE
        while response.status_code == 500 and time.monotonic() < deadline:
            response = other.http.post("/subjects/after/versions", json=schema(99))
        assert response.json()["id"] == 11
    finally:
        for served in both:
            served.close()


def test_proxy_produces_and_consumes(kafka: ApacheKafka) -> None:
    schemas = registry(kafka)
    rest = ServedApp(lambda _: rest_app(Options(kafka.bootstrap, schemas.url)))
    try:
        http: httpx.Client = rest.http
        cluster = f"/v3/clusters/{http.get('/v3/clusters').json()['data'][0]['cluster_id']}"
        assert (
            http.post(f"{cluster}/topics", json={"topic_name": "t", "partitions_count": 2}).status_code == 201
        )
        kind = "application/vnd.kafka.avro.v2+json"
        body = {"value_schema": '"string"', "records": [{"value": f"v{number}"} for number in range(10)]}
        sent = http.post("/topics/t", content=json.dumps(body), headers={"content-type": kind}).json()
        assert all(offset["error_code"] is None for offset in sent["offsets"])
        settings = {"format": "avro", "auto.offset.reset": "earliest"}
        uri = http.post("/consumers/g", json=settings).json()["base_uri"]
        http.post(f"{uri}/subscription", json={"topics": ["t"]})
        found: list[str] = []
        deadline = time.monotonic() + DEADLINE
        while len(found) < 10:
            assert time.monotonic() < deadline
            records = http.get(f"{uri}/records", headers={"accept": kind}).json()
            found += [record["value"] for record in records]
        assert sorted(found) == sorted(f"v{number}" for number in range(10))
        assert http.post(f"{uri}/offsets").status_code == 200
        assert http.get(f"{cluster}/consumer-groups/g/lag-summary").json()["total_lag"] == 0
        assert http.get(f"{cluster}/topics/t/configs/retention.ms").json()["value"] == "604800000"
        assert http.delete(f"{cluster}/topics/t").status_code == 204
    finally:
        rest.close()
        schemas.close()
