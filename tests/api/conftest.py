"""Handlers on a real cluster and real logs, called directly."""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millrace.api import HANDLERS_BY_KEY, offered_versions
from millrace.api.context import Context
from millrace.api.dispatch import error_response
from millrace.api.long_requests import LongRequests
from millrace.clock import Clock
from millrace.config import Listener
from millrace.deferred import Deferred
from millrace.errors import KafkaError
from millrace.net.buffers import FrameBuffers
from millrace.steps import finish_at_once
from millrace.timers import Timers

from ..node import Node, finish
from .members import Talk

Call = Callable[..., Any]

TO_GROUP_COORDINATORS = {8, 9, 11, 12, 13, 14, 15, 28, 42, 47, 68, 69}
TO_TRANSACTION_COORDINATORS = {22, 24, 25, 26, 65}

SMALL_AND_QUICK = {
    "auto.create.topics.enable": "true",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
}


def new_context(node: Node, properties: dict[str, str] | None = None) -> Context:
    opened = node.open(SMALL_AND_QUICK | (properties or {})).node
    return Context(
        config=opened.config,
        metadata=opened.metadata,
        partitions=opened.partitions,
        inspector=opened.inspector,
        producer_ids=opened.producer_ids,
        fetch_sessions=opened.fetch_sessions,
        woken=opened.woken,
        groups=opened.groups,
        transactions=opened.transactions,
        clock=opened.clock,
        loop=opened.loop,
        long_requests=LongRequests(FrameBuffers(-1)),
        run_in_thread=opened.run_in_thread,
        listener=Listener("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT", "broker.example", 19092),
        api_versions=offered_versions(),
    )


@pytest.fixture
def clock() -> Clock:
    """The machine's time; tests of timeouts replace it with a manual clock."""
    return Clock()


@pytest.fixture
def timers() -> Timers | None:
    """The loop's own timers; tests of timeouts replace them with manual ones."""
    return None


@pytest.fixture
def node(tmp_path: Path, clock: Clock, timers: Timers | None) -> Iterator[Node]:
    node = Node(tmp_path / "data", clock=clock, timers=timers)
    yield node
    node.kill()


@pytest.fixture
def ctx(node: Node) -> Iterator[Context]:
    context = new_context(node)
    yield context
    context.loop.run_until_complete(context.inspector.stop())
    context.loop.close()


@pytest.fixture
def call(ctx: Context) -> Call:
    """Answer a request in a version, the highest unless told, as dispatch would."""

    def answer(request: Any, version: int | None = None) -> Any:
        handler = HANDLERS_BY_KEY[request.api_key]
        # Clients find their coordinator first, which creates its topic.
        if request.api_key in TO_GROUP_COORDINATORS:
            finish(ctx.groups.runtime.ensure_topic())
        if request.api_key in TO_TRANSACTION_COORDINATORS:
            finish(ctx.transactions.runtime.ensure_topic())
        ctx.api_version = handler.highest if version is None else version
        try:
            response = handler.handle(ctx, request)
            if inspect.isgenerator(response):
                return finish_at_once(response)
            if isinstance(response, Deferred) and response.resolved:
                return response.result()
            return ctx.loop.run_until_complete(response) if inspect.iscoroutine(response) else response
        except KafkaError as error:
            return error_response(handler, error)

    return answer


@pytest.fixture
def talk(ctx: Context, call: Call) -> Talk:
    """Talks to the group coordinator in the bytes of any version."""
    return Talk(ctx, call)
