"""Handlers on a real cluster and real logs, called directly."""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millrace.api import HANDLERS_BY_KEY
from millrace.api.dispatch import error_response
from millrace.clock import Clock
from millrace.deferred import Deferred
from millrace.errors import KafkaError
from millrace.steps import finish_at_once
from millrace.timers import Timers

from ..node import Node, finish
from .api import Api
from .members import Talk

Call = Callable[..., Any]

TO_GROUP_COORDINATORS = {8, 9, 11, 12, 13, 14, 15, 28, 42, 47, 68, 69}
TO_TRANSACTION_COORDINATORS = {22, 24, 25, 26, 65}


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
def api(node: Node) -> Iterator[Api]:
    api = Api(node)
    yield api
    api.loop.run_until_complete(api.inspector.stop())
    api.loop.close()


@pytest.fixture
def call(api: Api) -> Call:
    """Answer a request in a version, the highest unless told, as dispatch would."""

    def answer(request: Any, version: int | None = None) -> Any:
        handler = HANDLERS_BY_KEY[request.api_key]
        # Clients find their coordinator first, which creates its topic.
        if request.api_key in TO_GROUP_COORDINATORS:
            finish(api.groups.runtime.ensure_topic())
        if request.api_key in TO_TRANSACTION_COORDINATORS:
            finish(api.transactions.runtime.ensure_topic())
        api.api_version = handler.highest if version is None else version
        try:
            response = handler.handle(api.context(), request)
            if inspect.isgenerator(response):
                return finish_at_once(response)
            if isinstance(response, Deferred) and response.resolved:
                return response.result()
            return api.loop.run_until_complete(response) if inspect.iscoroutine(response) else response
        except KafkaError as error:
            return error_response(handler, error)

    return answer


@pytest.fixture
def talk(api: Api, call: Call) -> Talk:
    """Talks to the group coordinator in the bytes of any version."""
    return Talk(api, call)
