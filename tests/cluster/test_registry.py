"""The cluster in the ensemble's nodes: one controller at a time, and what it finds half done."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from millrace.clock import Clock
from millrace.cluster import znodes
from millrace.cluster.controller import Controller
from millrace.cluster.coordination import Create, Delete
from millrace.cluster.image import BrokerImage, Endpoint
from millrace.cluster.metadata_changes import MetadataChanges
from millrace.cluster.registry import Deposed, Registry
from millrace.config import BrokerConfig
from millrace.testing.ensemble import MemoryEnsemble, MemorySession

PROTOCOLS = {"PLAINTEXT": "PLAINTEXT"}
NEW_TOPIC = {
    "name": "orders",
    "partitions": 2,
    "replication_factor": 2,
    "configs": {"retention.ms": "1000"},
    "assignments": None,
    "validate_only": False,
}


class Member:
    """A broker's registry, without the broker."""

    def __init__(self, ensemble: MemoryEnsemble, number: int) -> None:
        self.number = number
        self.session = MemorySession(ensemble)
        self.registry = Registry(self.session, Clock())
        self.config = BrokerConfig.from_properties({"broker.id": str(number)})

    async def join(self) -> int:
        await self.session.connect()
        await self.registry.prepare()
        endpoints = {"PLAINTEXT": Endpoint("127.0.0.1", 9000 + self.number)}
        return await self.registry.register(BrokerImage(self.number, endpoints, "rack"), PROTOCOLS)

    async def rule(self) -> Controller:
        seat = await self.registry.campaign(self.number)
        assert seat is not None, "there is a controller"
        controller = Controller(self.registry, seat, self.config)
        await controller.take_over("cluster")
        return controller


def with_members(scenario: Callable[[Member, Member], Awaitable[None]]) -> None:
    async def run() -> None:
        ensemble = MemoryEnsemble()
        first, second = Member(ensemble, 1), Member(ensemble, 2)
        await first.join()
        await second.join()
        try:
            await scenario(first, second)
        finally:
            await first.session.close()
            await second.session.close()

    asyncio.run(run())


def test_brokers_are_found_with_their_lives() -> None:
    async def scenario(first: Member, second: Member) -> None:
        one, two = await first.registry.brokers()
        assert (one.broker_id, one.rack) == (1, "rack")
        assert two.endpoints["PLAINTEXT"] == Endpoint("127.0.0.1", 9002)
        assert two.epoch > one.epoch

    with_members(scenario)


def test_there_is_one_controller_and_a_deposed_one_cannot_write() -> None:
    async def scenario(first: Member, second: Member) -> None:
        old = await first.rule()
        assert await second.registry.campaign(2) is None
        await second.session.commit([Delete(znodes.CONTROLLER)])
        new = await second.rule()
        assert new.seat.epoch == old.seat.epoch + 1
        with pytest.raises(Deposed):
            await MetadataChanges(old).change("create_topic", NEW_TOPIC)
        await MetadataChanges(new).change("create_topic", NEW_TOPIC)
        assert await second.session.get(znodes.topic_path("orders")) is not None

    with_members(scenario)


def test_a_new_controller_reads_what_the_one_before_wrote() -> None:
    async def scenario(first: Member, second: Member) -> None:
        old = await first.rule()
        await MetadataChanges(old).change("create_topic", NEW_TOPIC)
        await first.session.close()
        new = await second.rule()
        topic = new.image.topics["orders"]
        assert topic.topic_id == old.image.topics["orders"].topic_id
        assert topic.configs == {"retention.ms": "1000"}
        # The first broker is gone with its session.
        assert {state.leader for state in topic.states} == {2}
        assert all(state.isr == (2,) for state in topic.states)

    with_members(scenario)


def test_a_topic_that_was_half_created_is_completed() -> None:
    async def scenario(first: Member, second: Member) -> None:
        old = await first.rule()
        await MetadataChanges(old).change("create_topic", NEW_TOPIC)
        await second.session.commit([Delete(znodes.state_path("orders", 1))])
        await second.session.commit([Delete(znodes.partition_path("orders", 1))])
        await first.session.close()
        new = await second.rule()
        assert new.image.topics["orders"].states[1].leader == 2
        assert await second.session.get(znodes.state_path("orders", 1)) is not None

    with_members(scenario)


def test_a_deletion_that_was_interrupted_is_completed() -> None:
    async def scenario(first: Member, second: Member) -> None:
        old = await first.rule()
        await MetadataChanges(old).change("create_topic", NEW_TOPIC)
        await first.session.commit([Create(f"{znodes.DELETED_TOPICS}/orders")])
        await first.session.close()
        new = await second.rule()
        assert "orders" not in new.image.topics
        assert await second.session.get(znodes.topic_path("orders")) is None
        assert await second.session.children(znodes.DELETED_TOPICS) == []

    with_members(scenario)


def test_producer_ids_are_given_out_once() -> None:
    async def scenario(first: Member, second: Member) -> None:
        controller = await first.rule()
        blocks = [
            await controller.registry.take_producer_ids(controller.seat, broker) for broker in (1, 2, 1)
        ]
        assert blocks == [(0, 1000), (1000, 1000), (2000, 1000)]

    with_members(scenario)
