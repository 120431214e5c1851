"""Handlers on a real cluster and real logs, called directly."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millrace.api import HANDLERS_BY_KEY, offered_versions
from millrace.api.context import Context
from millrace.api.dispatch import error_response
from millrace.api.fetch_sessions import FetchSessions
from millrace.clock import Clock
from millrace.config import Listener
from millrace.errors import KafkaError
from millrace.groups.coordinator import Groups
from millrace.replication.waiting import Woken
from millrace.timers import LoopTimers
from millrace.txn.producer_ids import ProducerIds
from millrace.txn.transactions import Transactions

from ..node import Node
from .members import Talk

Call = Callable[..., Any]

SMALL_AND_QUICK = {
    "auto.create.topics.enable": "true",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
}


def new_context(node: Node, properties: dict[str, str] | None = None) -> Context:
    cluster = node.open(SMALL_AND_QUICK | (properties or {}))
    clock = Clock()
    loop = asyncio.new_event_loop()

    def run_now(work: Callable[[], object]) -> asyncio.Future[object]:
        done = loop.create_future()
        done.set_result(work())
        return done

    def create_topic(name: str, partitions: int, configs: dict[str, str]) -> object:
        return cluster.create_topic(name, partitions, configs=configs)

    producer_ids = ProducerIds(cluster.partitions.log_dirs[0])
    timers = LoopTimers(loop)
    return Context(
        config=cluster.config,
        cluster=cluster,
        partitions=cluster.partitions,
        producer_ids=producer_ids,
        fetch_sessions=FetchSessions(10, 1000, clock),
        woken=Woken(loop),
        groups=Groups(
            topics=cluster,
            partitions=cluster.partitions,
            create_topic=create_topic,
            config=cluster.config,
            clock=clock,
            timers=timers,
        ),
        transactions=Transactions(
            topics=cluster.topics,
            partitions=cluster.partitions,
            producer_ids=producer_ids,
            create_topic=create_topic,
            config=cluster.config,
            clock=clock,
            timers=timers,
        ),
        clock=clock,
        loop=loop,
        run_in_thread=run_now,
        listener=Listener("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT", "broker.example", 19092),
        api_versions=offered_versions(),
    )


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "data")
    yield node
    node.kill()


@pytest.fixture
def ctx(node: Node) -> Iterator[Context]:
    context = new_context(node)
    yield context
    context.loop.close()


@pytest.fixture
def call(ctx: Context) -> Call:
    """Answer a request in a version, the highest unless told, as dispatch would."""

    def answer(request: Any, version: int | None = None) -> Any:
        handler = HANDLERS_BY_KEY[request.api_key]
        ctx.api_version = handler.highest if version is None else version
        try:
            response = handler.handle(ctx, request)
            return ctx.loop.run_until_complete(response) if inspect.iscoroutine(response) else response
        except KafkaError as error:
            return error_response(handler, error)

    return answer


@pytest.fixture
def talk(ctx: Context, call: Call) -> Talk:
    """Talks to the group coordinator in the bytes of any version."""
    return Talk(ctx, call)
