"""Quotas of users and clients."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from millrace.client import Address, Connection
from millrace.security.quotas import FETCH, PRODUCE, REQUEST, Quotas, Rate
from millrace.testing import Broker
from millrace.testing.clock import ManualClock
from millrace.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from millrace.wire.messages.metadata import MetadataRequest, MetadataResponse

PATIENCE_SECONDS = 30


def quotas(clock: ManualClock, **configs: dict[str, str]) -> Quotas:
    named = {path.replace("__", "/").replace("any", "<default>"): found for path, found in configs.items()}
    made = Quotas(lambda: named, clock, 11)
    made.refresh()
    return made


def limit(value: float) -> dict[str, str]:
    return {PRODUCE: str(value)}


def test_without_quotas_nothing_is_measured() -> None:
    clock = ManualClock()
    assert not quotas(clock).active
    assert not quotas(clock, users__ada={"SCRAM-SHA-256": "..."}).active
    assert quotas(clock, users__ada=limit(1)).active


def test_a_client_waits_until_its_rate_is_down_to_its_quota() -> None:
    clock = ManualClock()
    limited = quotas(clock, users__ada=limit(100.0))
    # Ten seconds' worth may come at once.
    assert limited.throttle_ms("ada", "app", {PRODUCE: 1000}) == 0
    assert limited.throttle_ms("ada", "app", {PRODUCE: 200}) == 2000
    assert limited.throttle_ms("eve", "app", {PRODUCE: 10_000}) == 0
    assert limited.throttle_ms("ada", "app", {FETCH: 10_000, REQUEST: 10_000}) == 0
    clock.advance(12_000)
    assert limited.throttle_ms("ada", "app", {PRODUCE: 1000}) == 0


def test_the_most_specific_quota_counts() -> None:
    clock = ManualClock()
    levels = {
        "users__ada__clients__app": limit(1),
        "users__ada__clients__any": limit(2),
        "users__ada": limit(3),
        "users__any__clients__app": limit(4),
        "users__any__clients__any": limit(5),
        "users__any": limit(6),
        "clients__app": limit(7),
        "clients__any": limit(8),
    }
    for number, path in enumerate(levels, 1):
        rest = dict(list(levels.items())[number - 1 :])
        limited = quotas(clock, **rest)
        expected = (1680 / number - 10) * 1000
        assert limited.throttle_ms("ada", "app", {PRODUCE: 1680}) == expected, path


def test_clients_with_a_default_quota_do_not_share_it() -> None:
    limited = quotas(ManualClock(), users__any=limit(10))
    assert limited.throttle_ms("ada", "x", {PRODUCE: 100}) == 0
    assert limited.throttle_ms("eve", "x", {PRODUCE: 100}) == 0
    assert limited.throttle_ms("ada", "y", {PRODUCE: 100}) == 10_000


def test_clients_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millrace.security.quotas.MAX_REMEMBERED", 10)
    clock = ManualClock()
    limited = quotas(clock, clients__any=limit(10))
    for number in range(100):
        limited.throttle_ms("ada", f"client-{number}", {PRODUCE: 100})
        clock.advance(2_000)
    assert len(limited._limits) <= 10
    assert len(limited._rates) <= 20
    # One that is still there is remembered.
    assert limited.throttle_ms("ada", "client-99", {PRODUCE: 100}) > 0


def test_old_samples_do_not_count() -> None:
    rate = Rate(3)
    for second in range(100):
        rate.add(second, 10.0)
    assert rate.excess_seconds(99, 10.0) == pytest.approx(1.0)
    assert rate.excess_seconds(99, 15.0) == 0.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"quota.window.num": "2", "max.connections.per.ip.overrides": "127.0.0.2:2"}) as broker:
        yield broker


async def set_quota(broker: Broker, client_id: str, name: str, value: float) -> None:
    connection = await Connection.open(Address("127.0.0.1", broker.port))
    entry = EntryData([EntityData("client-id", client_id)], [OpData(name, value)])
    response = await connection.send(AlterClientQuotasRequest([entry]), AlterClientQuotasResponse)
    connection.close()
    assert not response.entries[0].error_code, response


async def test_a_producer_above_its_quota_is_throttled(broker: Broker) -> None:
    await set_quota(broker, "greedy", PRODUCE, 100_000)
    throttled: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "greedy",
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )
    began = time.monotonic()
    for _ in range(4):
        producer.produce("quotas", bytes(50_000))
        assert producer.flush(PATIENCE_SECONDS) == 0
    producer.poll(0)
    assert throttled
    # 200 KB at 100 KB/s, of which a second's worth is free.
    assert time.monotonic() - began > 0.5


async def test_a_consumer_above_its_quota_is_throttled(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(4):
        producer.produce("fetched", bytes(100_000))
    assert producer.flush(PATIENCE_SECONDS) == 0
    await set_quota(broker, "reader", FETCH, 200_000)
    throttled: list[float] = []
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "reader",
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )
    consumer.subscribe(["fetched"])
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not throttled and time.monotonic() < deadline:
        consumer.poll(0.1)
    consumer.close()
    assert throttled


async def test_requests_above_the_share_of_time_wait(broker: Broker) -> None:
    await set_quota(broker, "busy", REQUEST, 0.01)
    connection = await Connection.open(Address("127.0.0.1", broker.port), client_id="busy")
    longest = 0
    for _ in range(200):
        response = await connection.send(MetadataRequest(topics=None), MetadataResponse)
        longest = max(longest, response.throttle_time_ms)
        if longest:
            break
    connection.close()
    assert longest


def test_an_address_has_no_more_connections_than_it_may(broker: Broker) -> None:
    def connect() -> socket.socket:
        return socket.create_connection(("127.0.0.1", broker.port), 10, source_address=("127.0.0.2", 0))

    def is_closed(connection: socket.socket, seconds: float) -> bool:
        connection.settimeout(seconds)
        try:
            return connection.recv(1) == b""
        except TimeoutError:
            return False
        except ConnectionResetError:
            return True

    with connect() as first, connect(), connect() as third:
        assert is_closed(third, PATIENCE_SECONDS)
        first.close()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            with connect() as another:
                if not is_closed(another, 0.5):
                    return
    pytest.fail("a closed connection still counts")
