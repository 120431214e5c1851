"""A fetch that waits for records, on the handlers' own loop and on manual time."""

import asyncio
from types import GeneratorType

from millrace.api import fetch
from millrace.deferred import Deferred
from millrace.steps import finish_at_once
from millrace.testing.timers import ManualTimers
from millrace.wire.messages.fetch import FetchRequest, FetchResponse

from .api import Api

VERSION = 11


class ParkedFetch:
    """A request that is not answered at once, and the responses that it gets later."""

    def __init__(self, api: Api, request: FetchRequest) -> None:
        self._api = api
        api.api_version = VERSION
        result = fetch.handle(api.context(), request)
        if isinstance(result, GeneratorType):
            result = finish_at_once(result)
        assert isinstance(result, Deferred), "the request was answered at once"
        self.deferred: Deferred[FetchResponse] = result
        self.received: list[FetchResponse] = []
        result.then(self.received.append)

    def responses(self, *, after_ms: int = 0, turns: int = 1) -> list[FetchResponse]:
        """The responses so far, once some time has passed and the loop has had some turns."""
        if after_ms:
            timers = self._api.woken.timers
            assert isinstance(timers, ManualTimers)
            timers.advance(after_ms)
        for _ in range(turns):
            self._api.loop.run_until_complete(asyncio.sleep(0))
        return self.received
