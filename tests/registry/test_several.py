"""Several registries over one topic: election, forwarding, take-over, fencing, kill -9."""

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.registry.conftest import DEADLINE, Served

from millrace.ports import free_port
from millrace.testing import Broker


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


def fixed(name: str, size: int) -> dict[str, str]:
    return {"schema": json.dumps({"type": "fixed", "name": name, "size": size})}


def ids_in_log(broker: Broker, topic: str) -> list[int]:
    """The ids of all schema records, as a reader of committed records sees them."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    found = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(DEADLINE)
            assert message is not None
            if message.error():
                return found
            key = json.loads(message.key())
            if key["keytype"] == "SCHEMA" and message.value():
                found.append(json.loads(message.value())["id"])
    finally:
        consumer.close()


@pytest.fixture
def two(registry_broker: Broker, subject: str) -> Iterator[tuple[Served, Served]]:
    first = Served(registry_broker.bootstrap, topic=subject)
    second = Served(registry_broker.bootstrap, topic=subject)
    try:
        wait_until(lambda: first.is_leader != second.is_leader)
        yield (first, second) if first.is_leader else (second, first)
    finally:
        for each in (first, second):
            with contextlib.suppress(RuntimeError):
                each.close()


def test_follower_forwards_writes_and_serves_reads(two: tuple[Served, Served]) -> None:
    leader, follower = two
    for number, each in enumerate((leader, follower, follower, leader), 1):
        response = each.http.post(
            f"/subjects/a%2Fb {number}/versions?normalize=true", json=fixed("F", number)
        )
        assert response.json()["id"] == number, response.text
    wait_until(lambda: len(follower.http.get("/subjects").json()) == 4)
    assert follower.http.get("/schemas/ids/4").json() == leader.http.get("/schemas/ids/4").json()
    refused = follower.http.post("/subjects/x/versions", json={"schema": '{"type":"fixed"}'})
    assert refused.json()["error_code"] == 42201
    missing = follower.http.delete("/subjects/missing")
    assert (missing.status_code, missing.json()["error_code"]) == (404, 40401)
    assert follower.http.put("/config", json={"compatibility": "FULL"}).status_code == 200


def test_follower_takes_over_when_the_leader_leaves(
    registry_broker: Broker, two: tuple[Served, Served]
) -> None:
    leader, follower = two
    assert leader.http.post("/subjects/a/versions", json=fixed("F", 1)).json()["id"] == 1
    leader.close()
    wait_until(lambda: follower.is_leader)
    assert follower.http.post("/subjects/a/versions", json=fixed("F", 1)).json()["id"] == 1
    assert follower.http.post("/subjects/b/versions", json=fixed("F", 2)).json()["id"] == 2


def test_two_registries_racing_give_each_schema_one_id(
    registry_broker: Broker, subject: str, two: tuple[Served, Served]
) -> None:
    def register(number: int) -> int:
        each = two[number % 2]
        size = number // 2 + 1
        return int(each.http.post(f"/subjects/s{size}/versions", json=fixed("F", size)).json()["id"])

    with ThreadPoolExecutor(8) as threads:
        ids = list(threads.map(register, range(80)))
    assert ids[::2] == ids[1::2]
    assert len(set(ids)) == 40
    logged = ids_in_log(registry_broker, subject)
    assert sorted(logged) == sorted(set(ids))


def test_leader_that_was_replaced_cannot_write(registry_broker: Broker, subject: str) -> None:
    """Two groups over one topic: both registries believe that they lead, and one fences the other."""
    old = Served(registry_broker.bootstrap, topic=subject, group=subject)
    try:
        assert old.http.post("/subjects/a/versions", json=fixed("F", 1)).json()["id"] == 1
        producer = Producer(
            {
                "bootstrap.servers": registry_broker.bootstrap,
                "transactional.id": f"millrace-registry-{subject}-{subject}",
            }
        )
        producer.init_transactions(DEADLINE)
        response = old.http.post("/subjects/b/versions", json=fixed("F", 2))
        # It notices, takes over again, and the write is made once or refused; never lost in between.
        assert response.status_code in (200, 500), response.text
        wait_until(lambda: old.http.post("/subjects/b/versions", json=fixed("F", 2)).status_code == 200)
        assert ids_in_log(registry_broker, subject) == [1, 2]
    finally:
        old.close()


def test_registry_that_may_not_lead_never_does(registry_broker: Broker, subject: str) -> None:
    follower = Served(registry_broker.bootstrap, topic=subject, eligible=False)
    leader = Served(registry_broker.bootstrap, topic=subject)
    try:
        wait_until(lambda: leader.is_leader)
        assert follower.http.post("/subjects/a/versions", json=fixed("F", 1)).json()["id"] == 1
        assert not follower.is_leader
    finally:
        follower.close()
        leader.close()


def test_restarted_registry_knows_everything(registry_broker: Broker, subject: str) -> None:
    first = Served(registry_broker.bootstrap, topic=subject)
    first.http.post("/subjects/a/versions", json=fixed("F", 1))
    first.http.put("/config/a", json={"compatibility": "FULL"})
    first.http.put("/mode/b", json={"mode": "READONLY"})
    before = [first.http.get(path).json() for path in ("/schemas", "/config/a", "/mode/b")]
    first.close()
    second = Served(registry_broker.bootstrap, topic=subject)
    assert [second.http.get(path).json() for path in ("/schemas", "/config/a", "/mode/b")] == before
    second.close()


def test_registry_starts_among_unreadable_records(registry_broker: Broker, subject: str) -> None:
    """Records that another program wrote do not stop the registry, and its own stay readable."""
    first = Served(registry_broker.bootstrap, topic=subject)
    first.http.post("/subjects/a/versions", json=fixed("F", 1))
    producer = Producer({"bootstrap.servers": registry_broker.bootstrap})
    bad = b'{"keytype":"SCHEMA","subject":"broken","version":1,"magic":1}'
    producer.produce(subject, b"not json", b"not json either", partition=0)
    value = json.dumps({"subject": "broken", "version": 1, "id": 9, "schema": "{", "deleted": False})
    producer.produce(subject, value.encode(), bad, partition=0)
    assert producer.flush(DEADLINE) == 0
    first.close()
    second = Served(registry_broker.bootstrap, topic=subject)
    try:
        assert second.http.get("/subjects").json() == ["a", "broken"]
        assert second.http.get("/subjects/broken/versions/1").json()["schema"] == "{"
        # A stored schema that cannot be parsed blocks neither its subject nor others.
        assert second.http.post("/subjects/broken/versions", json=fixed("F", 2)).json()["id"] == 10
        assert second.http.post("/subjects/a/versions", json=fixed("F", 1)).json()["id"] == 1
    finally:
        second.close()


@contextlib.contextmanager
def process(broker: Broker, topic: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A registry in a process of its own, as `millrace registry` starts it."""
    command = [sys.executable, "-m", "millrace", "registry", "--bootstrap-server", broker.bootstrap]
    child = subprocess.Popen([*command, "--port", str(port), "--topic", topic, "--group", topic])
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/subjects", timeout=DEADLINE).status_code == 200
    except httpx.TransportError:
        return False


# The group waits for the session of the killed registry to end, which takes ten seconds.
@pytest.mark.proof
def test_killed_registry_loses_no_answered_write_and_repeats_none(
    registry_broker: Broker, subject: str
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    answered: dict[int, int] = {}
    with process(registry_broker, subject, port) as child:
        wait_until(lambda: answers(port))

        def register(size: int) -> None:
            with contextlib.suppress(httpx.TransportError, KeyError):
                response = httpx.post(f"{url}/subjects/s{size}/versions", json=fixed("F", size), timeout=30)
                answered[size] = response.json()["id"]

        with ThreadPoolExecutor(4) as threads:
            writes = [threads.submit(register, size) for size in range(1, 200)]
            wait_until(lambda: len(answered) >= 10)
            # Between a write and its response, most likely: four are under way at any moment.
            child.send_signal(signal.SIGKILL)
            child.wait()
            for write in writes:
                write.result()
    assert len(answered) < 199
    with process(registry_broker, subject, port):
        wait_until(lambda: answers(port))
        again = {
            size: httpx.post(f"{url}/subjects/s{size}/versions", json=fixed("F", size), timeout=60).json()[
                "id"
            ]
            for size in range(1, 30)
        }
    assert {size: again[size] for size in answered if size in again} == {
        size: number for size, number in answered.items() if size in again
    }
    assert len(set(again.values())) == len(again)
    logged = ids_in_log(registry_broker, subject)
    assert len(logged) == len(set(logged))
